"""KFP component of the tune step."""

from kfp import dsl

from components.platform.launcher.declare import Port, component

tune = component(
    "tune",
    "Search for the inlining decisions that make the modules of the corpus smallest, starting from a policy.\n\n"
    "A retry continues from the state in `search`. A run with other inputs in the same place starts from scratch.",
    Port("corpus", "Corpus of the code to tune.", dsl.Input[dsl.Dataset]),
    ("--trust-corpus", True),
    Port("training", "Training clang.", dsl.Input[dsl.Artifact], "--toolchain"),
    Port("policy", "Policy whose decisions the search starts from.", dsl.Input[dsl.Model]),
    Port("release", "Release clang with that policy.", dsl.Input[dsl.Artifact], "--release-toolchain"),
    Port("minutes", "Minutes of search. Empty: the step's default."),
    Port("recipe", "Recipe of the programs to link. Empty: none."),
    Port(
        "flag_rows",
        "Rows of flags under which they are linked, separated by commas; `all`: there is a plan only if they\nare "
        "smaller than by stock clang. Empty: nothing is linked.",
        option="--row",
    ),
    Port("workers", "Where modules are compiled, KIND[:N]."),
    Port("seed", "Random seed.", int),
    Port("search", "State of the search.", dsl.Output[dsl.Artifact], "--root-dir"),
    Port("plan", "Inlining decisions for the release clang.", dsl.Output[dsl.Artifact], "--output"),
    Port("plan_metrics", "Headline metrics.", dsl.Output[dsl.Metrics], ""),
    metrics={
        "tune.json:corpus_modules,modules,rounds,heuristic_bytes,policy_bytes,plan_bytes,policy_reduction_percent,"
        "plan_reduction_percent,plan_linked_reduction_percent": "plan_metrics"
    },
    work="search",
    extends="minutes",
)
