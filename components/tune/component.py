"""KFP's declaration of the tune step."""

from kfp import dsl

from components.launcher.declare import step


@dsl.container_component
def tune(  # type: ignore[no-untyped-def]
    corpus: dsl.Input[dsl.Dataset], training: dsl.Input[dsl.Artifact], policy: dsl.Input[dsl.Model],
    release: dsl.Input[dsl.Artifact], minutes: str, workers: str, seed: int,
    plan: dsl.Output[dsl.Artifact], metrics: dsl.Output[dsl.Metrics],
):  # fmt: skip
    """A plan: the inlining decisions of the corpus' modules, searched for from the policy's."""
    return step(
        "toolchain", "tune",
        ["--corpus", corpus.uri, "--toolchain", training.uri, "--policy", policy.uri,
         "--release-toolchain", release.uri, "--minutes", minutes, "--workers", workers, "--seed", seed,
         "--output", plan.uri],
        hours=24,
        metrics={"tune.json": "metrics"},
    )  # fmt: skip
