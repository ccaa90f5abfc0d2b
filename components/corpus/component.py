"""KFP component of the corpus step."""

from kfp import dsl

from components.platform.launcher.declare import Port, component

corpus = component(
    "corpus",
    "Create a corpus: LLVM bitcode and the compile command of each module.\n\n"
    "Exactly one of `recipe`, `existing` and `compile_commands` must not be empty.",
    Port("recipe", "Path or URI of a recipe, or the name of a built-in one: projects to fetch and build."),
    Port("existing", "Path or URI of an existing corpus."),
    Port("compile_commands", "Path or URI of the compile_commands.json of a finished build."),
    Port("llvm_major", "Major version of LLVM.", int),
    Port("problem", "Decision that the policy makes: `inlining` or `regalloc`."),
    Port("corpus", "Corpus in the layout of mlgo-utils.", dsl.Output[dsl.Dataset], "--output"),
    subcommand="obtain",
    metrics={"report.json:counts": "corpus"},
)
