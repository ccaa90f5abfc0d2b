"""KFP component of the vocab step."""

from kfp import dsl

from components.platform.launcher.declare import Port, component

vocab = component(
    "vocab",
    "Compute the quantiles of each feature of a trace.",
    Port("trace", "Trace of the default heuristic's decisions.", dsl.Input[dsl.Dataset]),
    Port("vocab", "`<feature>.buckets` of each feature.", dsl.Output[dsl.Artifact], "--output"),
)
