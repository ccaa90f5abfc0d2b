"""KFP's declaration of the warmstart step."""

from kfp import dsl

from components.launcher.declare import step


@dsl.container_component
def warmstart(  # type: ignore[no-untyped-def]
    trace: dsl.Input[dsl.Dataset], vocab: dsl.Input[dsl.Artifact], training: dsl.Input[dsl.Artifact], preset: str,
    start_from: str, seed: int, warmstart: dsl.Output[dsl.Model], metrics: dsl.Output[dsl.Metrics],
):  # fmt: skip
    """A policy that imitates the heuristic, or one that is trained already."""
    return step(
        "training", "warmstart",
        ["--trace", trace.uri, "--vocab", vocab.uri, "--toolchain", training.uri, "--preset", preset,
         "--start-from", start_from, "--seed", seed, "--output", warmstart.uri],
        hours=6,
        metrics={"report.json": "metrics"},
    )  # fmt: skip
