"""KFP component of the warmstart step."""

from kfp import dsl

from components.platform.launcher.declare import Port, component

warmstart = component(
    "warmstart",
    "Train a policy that imitates LLVM's heuristic by behavioral cloning, or adopt a trained one.",
    Port("trace", "Trace of the default heuristic's decisions.", dsl.Input[dsl.Dataset]),
    Port("vocab", "Quantiles of each feature.", dsl.Input[dsl.Artifact]),
    Port("training", "Training clang.", dsl.Input[dsl.Artifact], "--toolchain"),
    Port("preset", "Amount of training: `tiny`, `demo` or `full`."),
    Port(
        "start_from",
        "`heuristic`, `pretrained`, `pretrained-llvm`, `pretrained-thumb`, or the path or URI of a policy.\nEmpty: the "
        "deployed policy of `retrain_state`, or `heuristic`.",
    ),
    Port("retrain_state", "URI of the state of retraining. Empty: none."),
    Port(
        "features",
        "Features of the policy: `extended`; `llvm` for those that upstream LLVM has, too; or `ir2vec` for the\n"
        "extended ones and embeddings of functions.",
    ),
    Port("gin_bindings", "Hyperparameters, separated by semicolons; those of the network apply. Empty: the defaults."),
    Port("seed", "Random seed.", int),
    Port("warmstart", "Policy that training starts from.", dsl.Output[dsl.Model], "--output"),
    Port(
        "warmstart_metrics",
        "Agreement with the heuristic, loss, numbers of decisions and seconds.",
        dsl.Output[dsl.Metrics],
        "",
    ),
    Port(
        "agreement",
        "Confusion matrix of the heuristic's decisions (rows) and the policy's, for inlining.",
        dsl.Output[dsl.ClassificationMetrics],
        "",
    ),
    metrics={"report.json": "warmstart_metrics"},
    matrices={"report.json": "agreement"},
)
