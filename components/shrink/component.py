"""KFP component of the shrink step."""

from kfp import dsl

from components.platform.launcher.declare import step


@dsl.container_component
def shrink(  # type: ignore[no-untyped-def]
    source: str,
    command: str,
    check: str,
    release_toolchain: str,
    minutes: float,
    shrunk: dsl.Output[dsl.Artifact],
    shrink_metrics: dsl.Output[dsl.Metrics],
):
    """Build code by the smallest of several compilers and flags.

    Args:
        source: URI of the source tree, or URL of an archive of it.
        command: Shell command of the build, with its configure step. Empty: as the tree's build system has it.
        check: Shell command that tests what was built. Empty: the build's tests, or what its programs print.
        release_toolchain: URI of a release clang. Empty: one with the pretrained policies.
        minutes: Wall time of a search for better inlining decisions; 0 for none.
        shrunk: Linked files of the smallest build, compilers that make them again, and sizes of all builds.
        shrink_metrics: Reduction in percent.
    """
    options = {
        "--source": source,
        "--check": check,
        "--release-toolchain": release_toolchain,
        "--minutes": minutes,
        "--output": shrunk.uri,
    }
    return step("shrink", options, words=["--", command], metrics={"shrink.json:reduction_percent": "shrink_metrics"})
