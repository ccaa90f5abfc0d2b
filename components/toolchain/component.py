"""KFP's declaration of the toolchain step: one component for the training clang, one for the release clang."""

from kfp import dsl

from components.launcher.declare import step


@dsl.container_component
def toolchain_training(llvm_major: int, llvm_source: str, training: dsl.Output[dsl.Artifact]):  # type: ignore[no-untyped-def]
    """A clang that logs decisions and takes policies from the command line."""
    return step(
        "toolchain", "toolchain",
        ["--mode", "training", "--llvm-major", llvm_major, "--llvm-source", llvm_source, "--output", training.uri],
        hours=2,
    )  # fmt: skip


@dsl.container_component
def toolchain_release(  # type: ignore[no-untyped-def]
    policy: dsl.Input[dsl.Model], with_policy: str, llvm_major: int, llvm_source: str,
    release: dsl.Output[dsl.Artifact],
):  # fmt: skip
    """The clang that carries the policy, and one of another problem if `with_policy` names one."""
    return step(
        "toolchain", "toolchain",
        ["--mode", "release", "--llvm-major", llvm_major, "--llvm-source", llvm_source, "--policy", policy.uri,
         "--with-policy", with_policy, "--output", release.uri],
        hours=2,
    )  # fmt: skip
