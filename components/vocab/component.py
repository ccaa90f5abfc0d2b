"""KFP component of the vocab step."""

from kfp import dsl

from components.platform.launcher.declare import step


@dsl.container_component
def vocab(trace: dsl.Input[dsl.Dataset], vocab: dsl.Output[dsl.Artifact]):  # type: ignore[no-untyped-def]
    """Compute the quantiles of each feature of a trace.

    Args:
        trace: Trace of the default heuristic's decisions.
        vocab: `<feature>.buckets` of each feature.
    """
    return step("vocab", {"--trace": trace.uri, "--output": vocab.uri})
