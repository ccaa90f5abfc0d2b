"""KFP component of the trace step."""

from kfp import dsl

from components.platform.launcher.declare import step


@dsl.container_component
def trace(  # type: ignore[no-untyped-def]
    corpus: dsl.Input[dsl.Dataset],
    training: dsl.Input[dsl.Artifact],
    problem: str,
    workers: str,
    trace: dsl.Output[dsl.Dataset],
):
    """Record every decision of LLVM's default heuristic, with its features.

    Args:
        corpus: Corpus to compile.
        training: Training clang.
        problem: Decision that the policy makes: `inlining` or `regalloc`.
        workers: Where modules are compiled, KIND[:N].
        trace: Decisions with their features and rewards.
    """
    return step(
        "trace",
        {
            "--corpus": corpus.uri,
            "--trust-corpus": True,
            "--toolchain": training.uri,
            "--problem": problem,
            "--workers": workers,
            "--output": trace.uri,
        },
        metrics={"trace.json:modules,decisions": "trace"},
    )
