"""KFP's declaration of the corpus step."""

from kfp import dsl

from components.launcher.declare import step


@dsl.container_component
def corpus(  # type: ignore[no-untyped-def]
    recipe: str, existing: str, compile_commands: str, llvm_major: int, problem: str, corpus: dsl.Output[dsl.Dataset]
):
    """Modules of LLVM bitcode with their arguments, from whichever of the three sources is not empty."""
    return step(
        "toolchain", "corpus",
        ["obtain", "--recipe", recipe, "--existing", existing, "--compile-commands", compile_commands,
         "--llvm-major", llvm_major, "--problem", problem, "--output", corpus.uri],
        hours=6,
        metrics={"report.json": "corpus"},
    )  # fmt: skip
