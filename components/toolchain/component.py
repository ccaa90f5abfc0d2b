"""KFP components of the toolchain step: the training clang, the release clang, the SDK that both are linked from."""

from kfp import dsl

from components.platform.launcher.declare import Port, component

_LLVM_MAJOR = Port("llvm_major", "Major version of LLVM.", int)
_LLVM = (
    Port("targets", "Code generators to link: `native` or `all`. A plugin works with all."),
    _LLVM_MAJOR,
    Port("llvm_source", "Source of LLVM's matching files: `deb`, `git:TAG`, a path or a URI."),
    Port("sdk", "Path or URI of an LLVM SDK that `mlgo toolchain --mode sdk` built. Empty: the image's."),
)

toolchain_training = component(
    "toolchain-training",
    "Build the training clang, which logs decisions and takes policies from the command line.",
    ("--mode", "training"),
    Port(
        "strategy",
        "`sdk` links a clang, `plugin` builds a pass plugin for the installed one, `external` uses `clang`.",
    ),
    *_LLVM,
    Port("clang", "Path of a clang of LLVM's development mode, where all steps find it. Only for `external`."),
    Port("ir2vec_vocab", "Vocabulary of IR2Vec embeddings to log: a path, or `random`. Empty: none."),
    Port("training", "Training clang.", dsl.Output[dsl.Artifact], "--output"),
)

toolchain_release = component(
    "toolchain-release",
    "Build the release clang, which embeds the policy.",
    ("--mode", "release"),
    Port(
        "strategy",
        "`sdk` links a clang, `plugin` builds a pass plugin for the installed one, `external` is one of them.",
    ),
    *_LLVM,
    Port("policy", "Policy to embed.", dsl.Input[dsl.Model]),
    Port("extra_policy", "Path or URI of a policy for another problem to embed as well. Empty: none."),
    Port("release", "Release clang.", dsl.Output[dsl.Artifact], "--output"),
)

toolchain_sdk = component(
    "toolchain-sdk",
    "Build LLVM from source: an SDK for the parameter `sdk` of the other two.",
    ("--mode", "sdk"),
    Port("llvm_source", "LLVM's source: `deb`, `git:TAG`, a path or a URI."),
    _LLVM_MAJOR,
    Port("targets", "Code generators: `native`, `all`, or LLVM's names with commas between."),
    Port("projects", "Projects of llvm-project to configure next to clang and lld, with commas between."),
    Port("definitions", "Variables of LLVM's CMake project, NAME=VALUE with blanks between."),
    Port("jobs", "Parallel compiles. Empty: processors."),
    Port("sdk", "LLVM's libraries, headers, clang and lld.", dsl.Output[dsl.Artifact], "--output"),
)
