"""KFP's declaration of the PPO step."""

from kfp import dsl

from components.launcher.declare import step


@dsl.container_component
def ppo(  # type: ignore[no-untyped-def]
    corpus: dsl.Input[dsl.Dataset], training: dsl.Input[dsl.Artifact], trace: dsl.Input[dsl.Dataset],
    warmstart: dsl.Input[dsl.Model], problem: str, workers: str, spot: str, cluster: str, preset: str, minutes: str,
    seed: int, emphasize: str,
    ppo: dsl.Output[dsl.Artifact], policy: dsl.Output[dsl.Model], metrics: dsl.Output[dsl.Metrics],
):  # fmt: skip
    """A better policy. `ppo` holds the checkpoints: a retry goes on where the try before was ended, and what is run
    again with other inputs at the same place begins anew.

    workers: "rayjob:N" makes this a step that starts a RayJob and follows it; spot, cluster: what that is made of.
    """
    return step(
        "training", "ppo",
        ["--corpus", corpus.uri, "--toolchain", training.uri, "--trace", trace.uri, "--warmstart", warmstart.uri,
         "--problem", problem, "--workers", workers, "--spot", spot, "--cluster", cluster, "--preset", preset,
         "--minutes", minutes, "--seed", seed, "--emphasize", emphasize,
         "--root-by-inputs", "--root-dir", ppo.uri, "--output", policy.uri],
        hours=72,
        metrics={"report.json": "metrics"},
        work="ppo",
        extends="minutes",
    )  # fmt: skip
