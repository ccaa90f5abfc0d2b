"""KFP's declaration of the vocab step."""

from kfp import dsl

from components.launcher.declare import step


@dsl.container_component
def vocab(trace: dsl.Input[dsl.Dataset], vocab: dsl.Output[dsl.Artifact]):  # type: ignore[no-untyped-def]
    """Quantiles of each feature."""
    return step("training", "vocab", ["--trace", trace.uri, "--output", vocab.uri], hours=1)
