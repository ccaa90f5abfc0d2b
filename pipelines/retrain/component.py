"""KFP components of the last step of retraining: promote the policy if it is clearly better, or record the refusal."""

from kfp import dsl

from components.platform.launcher.declare import step


@dsl.container_component
def promote(  # type: ignore[no-untyped-def]
    policy: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    corpus: dsl.Input[dsl.Dataset],
    training: dsl.Input[dsl.Artifact],
    release_report: dsl.Input[dsl.Artifact],
    state: str,
    by: str,
    workers: str,
    registry: str,
    run_id: str,
    run_resource_name: str,
    promotion: dsl.Output[dsl.Artifact],
    promotion_metrics: dsl.Output[dsl.Metrics],
):
    """Evaluate the deployed policy on the run's corpus, and deploy the new one if it is clearly better.

    Args:
        policy: New policy.
        evaluation: Its evaluation by the training clang.
        corpus: Corpus of the run.
        training: Training clang.
        release_report: Report on the release clang with the new policy.
        state: URI of the state of retraining, in object storage.
        by: Person or account that promotes. Empty: the account of the step.
        workers: Where modules are compiled, KIND[:N].
        registry: Model registry of the deployed policy, `vertex:PROJECT/REGION` or a URL. Empty: none.
        run_id: ID of the run, for the state's history.
        run_resource_name: Resource name of the run on Vertex AI, preferred to the ID; another server's is ignored.
        promotion: The decision, with its reason.
        promotion_metrics: `promoted` is 1 or 0.
    """
    return step(
        "promote",
        {
            "--state": state,
            "--policy": policy.uri,
            "--evaluation": evaluation.uri,
            "--corpus": corpus.uri,
            "--toolchain": training.uri,
            "--release-report": release_report.uri,
            "--workers": workers,
            "--by": by,
            "--registry": registry,
            "--run-id": run_id,
            "--run-resource-name": run_resource_name,
            "--output": promotion.uri,
        },
        metrics={"promotion.json": "promotion_metrics"},
    )


@dsl.container_component
def record_refusal(  # type: ignore[no-untyped-def]
    policy: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    corpus: dsl.Input[dsl.Dataset],
    training: dsl.Input[dsl.Artifact],
    state: str,
    by: str,
    run_id: str,
    run_resource_name: str,
    refusal: dsl.Output[dsl.Artifact],
    refusal_metrics: dsl.Output[dsl.Metrics],
):
    """Record in the state of retraining that the policy is not promoted: the release clang embeds another one, or none.

    Args:
        policy: New policy.
        evaluation: Its evaluation by the training clang.
        corpus: Corpus of the run.
        training: Training clang.
        state: URI of the state of retraining, in object storage.
        by: Person or account that decides. Empty: the account of the step.
        run_id: ID of the run, for the state's history.
        run_resource_name: Resource name of the run on Vertex AI, preferred to the ID; another server's is ignored.
        refusal: The decision, with its reason.
        refusal_metrics: `promoted` is 0.
    """
    return step(
        "record-refusal",
        {
            "--state": state,
            "--policy": policy.uri,
            "--evaluation": evaluation.uri,
            "--corpus": corpus.uri,
            "--toolchain": training.uri,
            "--by": by,
            "--run-id": run_id,
            "--run-resource-name": run_resource_name,
            "--output": refusal.uri,
        },
        metrics={"promotion.json": "refusal_metrics"},
    )
