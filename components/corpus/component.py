"""KFP component of the corpus step."""

from kfp import dsl

from components.platform.launcher.declare import step


@dsl.container_component
def corpus(  # type: ignore[no-untyped-def]
    recipe: str,
    existing: str,
    compile_commands: str,
    input: str,
    input_type: str,
    thinlto_build: str,
    obj_base_dir: str,
    default_args: str,
    cmd_filter: str,
    unit: str,
    llvm_major: int,
    problem: str,
    corpus: dsl.Output[dsl.Dataset],
):
    """Create a corpus: LLVM bitcode and the compile command of each module.

    Exactly one of `recipe`, `existing`, `compile_commands` and `input` must not be empty.

    Args:
        recipe: Path or URI of a recipe, or the name of a built-in one: projects to fetch and build.
        existing: Path or URI of an existing corpus.
        compile_commands: Path or URI of the compile_commands.json of a finished build.
        input: Path or URI of another list of a build's objects, or of a directory with them, or with recorded links.
        input_type: Kind of `input`: `json`, `params`, `directory` or `bazel_aquery`. Empty: `json`.
        thinlto_build: Kind of the ThinLTO build: `distributed` or `local`. Empty: none.
        obj_base_dir: Path or URI of the directory that names of objects start from.
        default_args: Arguments of the modules of a `local` ThinLTO build.
        cmd_filter: Regular expression of cc1's arguments; modules without a match are left out. Empty: the problem's
            optimization level.
        unit: What a module is: `object`, or `program`, a linked program of a recipe or of recorded links.
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
            "--input": input,
            "--input-type": input_type,
            "--thinlto-build": thinlto_build,
            "--obj-base-dir": obj_base_dir,
            "--default-args": default_args,
            "--cmd-filter": cmd_filter,
            "--unit": unit,
            "--llvm-major": llvm_major,
            "--problem": problem,
            "--output": corpus.uri,
        },
        subcommand="obtain",
        metrics={"report.json:counts": "corpus"},
    )
