"""KFP component of the shrink step."""

from kfp import dsl

from components.platform.launcher.declare import Port, component

shrink = component(
    "shrink",
    "Build code by the smallest of several compilers and flags.",
    Port("source", "URI of the source tree, or URL of an archive of it."),
    Port(
        "command",
        "Shell command of the build, with its configure step. Empty: as the tree's build system has it.",
        option="",
    ),
    Port("check", "Shell command that tests what was built. Empty: the build's tests, or what its programs print."),
    Port("release_toolchain", "URI of a release clang. Empty: one with the pretrained policies."),
    Port("minutes", "Wall time of a search for better inlining decisions; 0 for none.", float),
    Port(
        "shrunk",
        "Linked files of the smallest build, compilers that make them again, and sizes of all builds.",
        dsl.Output[dsl.Artifact],
        "--output",
    ),
    Port("shrink_metrics", "Reduction in percent.", dsl.Output[dsl.Metrics], ""),
    shell="command",
    metrics={"shrink.json:reduction_percent": "shrink_metrics"},
)
