"""KFP component of the corpus step."""

from kfp import dsl

from components.platform.launcher.declare import step


@dsl.container_component
def corpus(  # type: ignore[no-untyped-def]
    recipe: str, existing: str, compile_commands: str, llvm_major: int, problem: str, corpus: dsl.Output[dsl.Dataset]
):
    """Create a corpus: LLVM bitcode and the compile command of each module.

    Exactly one of `recipe`, `existing` and `compile_commands` must not be empty.

    Args:
        recipe: Path or URI of a recipe, or the name of a built-in one: projects to fetch and build.
        existing: Path or URI of an existing corpus.
        compile_commands: Path or URI of the compile_commands.json of a finished build.
        llvm_major: Major version of LLVM.
        problem: Decision that the policy makes: `inlining` or `regalloc`.
        corpus: Corpus in the layout of mlgo-utils.
    """
    return step(
        "corpus",
        {
            "--recipe": recipe,
            "--existing": existing,
            "--compile-commands": compile_commands,
            "--llvm-major": llvm_major,
            "--problem": problem,
            "--output": corpus.uri,
        },
        subcommand="obtain",
        metrics={"report.json:counts": "corpus"},
    )
