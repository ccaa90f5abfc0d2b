"""KFP's declaration of the trace step."""

from kfp import dsl

from components.launcher.declare import step


@dsl.container_component
def trace(  # type: ignore[no-untyped-def]
    corpus: dsl.Input[dsl.Dataset], training: dsl.Input[dsl.Artifact], problem: str, workers: str,
    trace: dsl.Output[dsl.Dataset],
):  # fmt: skip
    """Every decision of the default heuristic, with its features."""
    return step(
        "training", "trace",
        ["--corpus", corpus.uri, "--toolchain", training.uri, "--problem", problem, "--workers", workers,
         "--output", trace.uri],
        hours=6,
        metrics={"trace.json": "trace"},
    )  # fmt: skip
