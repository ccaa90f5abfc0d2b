"""KFP component of the warmstart step."""

from kfp import dsl

from components.platform.launcher.declare import step


@dsl.container_component
def warmstart(  # type: ignore[no-untyped-def]
    trace: dsl.Input[dsl.Dataset],
    vocab: dsl.Input[dsl.Artifact],
    training: dsl.Input[dsl.Artifact],
    preset: str,
    start_from: str,
    retrain_state: str,
    features: str,
    gin_bindings: str,
    seed: int,
    warmstart: dsl.Output[dsl.Model],
    warmstart_metrics: dsl.Output[dsl.Metrics],
    agreement: dsl.Output[dsl.ClassificationMetrics],
):
    """Train a policy that imitates LLVM's heuristic by behavioral cloning, or adopt a trained one.

    Args:
        trace: Trace of the default heuristic's decisions.
        vocab: Quantiles of each feature.
        training: Training clang.
        preset: Amount of training: `tiny`, `demo` or `full`.
        start_from: `heuristic`, `pretrained`, `pretrained-llvm`, `pretrained-thumb`, or the path or URI of a policy.
            Empty: the deployed policy of `retrain_state`, or `heuristic`.
        retrain_state: URI of the state of retraining. Empty: none.
        features: Features of the policy: `extended`; `llvm` for those that upstream LLVM has, too; or `ir2vec` for the
            extended ones and embeddings of functions.
        gin_bindings: Hyperparameters, separated by semicolons; those of the network apply. Empty: the defaults.
        seed: Random seed.
        warmstart: Policy that training starts from.
        warmstart_metrics: Agreement with the heuristic, loss, numbers of decisions and seconds.
        agreement: Confusion matrix of the heuristic's decisions (rows) and the policy's, for inlining.
    """
    return step(
        "warmstart",
        {
            "--trace": trace.uri,
            "--vocab": vocab.uri,
            "--toolchain": training.uri,
            "--preset": preset,
            "--start-from": start_from,
            "--retrain-state": retrain_state,
            "--features": features,
            "--gin-bindings": gin_bindings,
            "--seed": seed,
            "--output": warmstart.uri,
        },
        metrics={"report.json": "warmstart_metrics"},
        matrices={"report.json": "agreement"},
    )
