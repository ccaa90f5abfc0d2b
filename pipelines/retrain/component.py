"""KFP components of the last step of retraining: promote the policy if it is clearly better, or record the refusal."""

from kfp import dsl

from components.platform.launcher.declare import Port, component

_STATE = Port("state", "URI of the state of retraining, in object storage.")
_RUN = (
    Port("policy", "New policy.", dsl.Input[dsl.Model]),
    Port("evaluation", "Its evaluation by the training clang.", dsl.Input[dsl.Artifact]),
    Port("corpus", "Corpus of the run.", dsl.Input[dsl.Dataset]),
    Port("training", "Training clang.", dsl.Input[dsl.Artifact], "--toolchain"),
)
_RUN_NAMES = (
    Port("run_id", "ID of the run, for the state's history."),
    Port(
        "run_resource_name",
        "Resource name of the run on Vertex AI, preferred to the ID; another server's is ignored.",
    ),
)

promote = component(
    "promote",
    "Evaluate the deployed policy on the run's corpus, and deploy the new one if it is clearly better.",
    _STATE,
    *_RUN,
    Port("release_report", "Report on the release clang with the new policy.", dsl.Input[dsl.Artifact]),
    Port("workers", "Where modules are compiled, KIND[:N]."),
    Port("by", "Person or account that promotes. Empty: the account of the step."),
    Port(
        "registry",
        "Model registry of the deployed policy, `vertex:PROJECT/REGION` or a URL. Empty: none.",
    ),
    *_RUN_NAMES,
    Port("promotion", "The decision, with its reason.", dsl.Output[dsl.Artifact], "--output"),
    Port("promotion_metrics", "`promoted` is 1 or 0.", dsl.Output[dsl.Metrics], ""),
    metrics={"promotion.json": "promotion_metrics"},
)

record_refusal = component(
    "record-refusal",
    "Record in the state of retraining that the policy is not promoted: the release clang embeds another one, or none.",
    _STATE,
    *_RUN,
    Port("by", "Person or account that decides. Empty: the account of the step."),
    *_RUN_NAMES,
    Port("refusal", "The decision, with its reason.", dsl.Output[dsl.Artifact], "--output"),
    Port("refusal_metrics", "`promoted` is 0.", dsl.Output[dsl.Metrics], ""),
    metrics={"promotion.json": "refusal_metrics"},
)
