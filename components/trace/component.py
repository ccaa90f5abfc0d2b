"""KFP component of the trace step."""

from kfp import dsl

from components.platform.launcher.declare import Port, component

trace = component(
    "trace",
    "Record every decision of LLVM's default heuristic, with its features.",
    Port("corpus", "Corpus to compile.", dsl.Input[dsl.Dataset]),
    ("--trust-corpus", True),
    Port("training", "Training clang.", dsl.Input[dsl.Artifact], "--toolchain"),
    Port("problem", "Decision that the policy makes: `inlining` or `regalloc`."),
    Port("workers", "Where modules are compiled, KIND[:N]."),
    Port("trace", "Decisions with their features and rewards.", dsl.Output[dsl.Dataset], "--output"),
    metrics={"trace.json:modules,decisions": "trace"},
)
