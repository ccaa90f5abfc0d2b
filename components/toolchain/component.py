"""KFP components of the toolchain step: the training clang, the release clang, the SDK that both are linked from."""

from kfp import dsl

from components.platform.launcher.declare import step


def _build(mode, strategy, targets, llvm_major, llvm_source, sdk, output, more):  # type: ignore[no-untyped-def]
    arguments = {"--mode": mode, "--strategy": strategy, "--targets": targets, "--llvm-major": llvm_major}
    arguments |= {"--llvm-source": llvm_source, "--sdk": sdk, **more, "--output": output.uri}
    return step(f"toolchain-{mode}", arguments)


@dsl.container_component
def toolchain_training(  # type: ignore[no-untyped-def]
    strategy: str,
    targets: str,
    llvm_major: int,
    llvm_source: str,
    sdk: str,
    clang: str,
    ir2vec_vocab: str,
    training: dsl.Output[dsl.Artifact],
):
    """Build the training clang, which logs decisions and takes policies from the command line.

    Args:
        strategy: `sdk` links a clang, `plugin` builds a pass plugin for the installed one, `external` uses `clang`.
        targets: Code generators to link: `native` or `all`. A plugin works with all.
        llvm_major: Major version of LLVM.
        llvm_source: Source of LLVM's matching files: `deb`, `git:TAG`, a path or a URI.
        sdk: Path or URI of an LLVM SDK that `mlgo toolchain --mode sdk` built. Empty: the image's.
        clang: Path of a clang of LLVM's development mode, where all steps find it. Only for `external`.
        ir2vec_vocab: Vocabulary of IR2Vec embeddings to log: a path, or `random`. Empty: none.
        training: Training clang.
    """
    more = {"--clang": clang, "--ir2vec-vocab": ir2vec_vocab}
    return _build("training", strategy, targets, llvm_major, llvm_source, sdk, training, more)


@dsl.container_component
def toolchain_release(  # type: ignore[no-untyped-def]
    policy: dsl.Input[dsl.Model],
    extra_policy: str,
    strategy: str,
    targets: str,
    llvm_major: int,
    llvm_source: str,
    sdk: str,
    release: dsl.Output[dsl.Artifact],
):
    """Build the release clang, which embeds the policy.

    Args:
        policy: Policy to embed.
        extra_policy: Path or URI of a policy for another problem to embed as well. Empty: none.
        strategy: `sdk` links a clang, `plugin` builds a pass plugin for the installed one, `external` is one of them.
        targets: Code generators to link: `native` or `all`. A plugin works with all.
        llvm_major: Major version of LLVM.
        llvm_source: Source of LLVM's matching files: `deb`, `git:TAG`, a path or a URI.
        sdk: Path or URI of an LLVM SDK that `mlgo toolchain --mode sdk` built. Empty: the image's.
        release: Release clang.
    """
    policies = {"--policy": policy.uri, "--extra-policy": extra_policy}
    return _build("release", strategy, targets, llvm_major, llvm_source, sdk, release, policies)


@dsl.container_component
def toolchain_sdk(  # type: ignore[no-untyped-def]
    llvm_source: str,
    llvm_major: int,
    targets: str,
    projects: str,
    definitions: str,
    jobs: str,
    sdk: dsl.Output[dsl.Artifact],
):
    """Build LLVM from source: an SDK for the parameter `sdk` of the other two.

    Args:
        llvm_source: LLVM's source: `deb`, `git:TAG`, a path or a URI.
        llvm_major: Major version of LLVM.
        targets: Code generators: `native`, `all`, or LLVM's names with commas between.
        projects: Projects of llvm-project to configure next to clang and lld, with commas between.
        definitions: Variables of LLVM's CMake project, NAME=VALUE with blanks between.
        jobs: Parallel compiles. Empty: processors.
        sdk: LLVM's libraries, headers, clang and lld.
    """
    arguments = {"--mode": "sdk", "--llvm-source": llvm_source, "--llvm-major": llvm_major, "--targets": targets}
    arguments |= {"--projects": projects, "--definitions": definitions, "--jobs": jobs, "--output": sdk.uri}
    return step("toolchain-sdk", arguments)
