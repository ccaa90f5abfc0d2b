"""Artifacts of a run that ended on a server, for `mlgo retrain promote --run ID`.

They are looked up as for `mlgo pipeline artifacts`, but only in object storage that the next run can read, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from components.platform.errors import UserError
from components.platform.storage.uri import ObjectUri
from pipelines.parameters.on_server import KFP_SCHEMES
from pipelines.submit.artifacts.published import newest_artifacts, require_folder
from pipelines.submit.artifacts.root import artifact_root_of
from pipelines.submit.kfp_run import KfpRun
from pipelines.submit.polling import RUN_ENDED, ServerRun, describe_state
from pipelines.submit.server import PipelineServer

REPORT = "release_report"
TASKS = {
    "policy": "ppo",
    "evaluation": "evaluation",
    "corpus": "corpus",
    "training": "toolchain-training",
    REPORT: "release-report",
}
"""Artifact that a promotion reads -> task of the pipeline that writes it."""


def server_run_artifacts(server: PipelineServer, run_id: str, uris: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the URIs of the artifacts of a run that `pipelines.retrain.promote.promotion` reads, and of "training".

    Args:
        run_id: ID of the run, or resource name on Vertex AI; it is the value of the key "run".
        uris: those that the user names, by the keys of TASKS; the others are looked up.

    Raises:
        UserError: there is no such run, it has not ended, its report on the release clang failed, its pipeline root is
            unknown or KFP copies artifacts there, or an artifact is missing.
    """
    artifacts = {name: uri for name, uri in (uris or {}).items() if uri}
    run = server.run(run_id)
    _require_ended(run)
    missing = {name: task for name, task in TASKS.items() if name not in artifacts}
    if run.outputs is not None:
        looked_up = {name: run.outputs.get(task, {}).get(name, {}).get("uri", "") for name, task in missing.items()}
    else:
        assert isinstance(run, KfpRun)
        folder = _folder(run)
        found = {task: newest_artifacts(folder / task) for task in missing.values()}
        looked_up = {name: str(found[task].get(name, "")) for name, task in missing.items()}
    artifacts |= {name: uri for name, uri in looked_up.items() if uri}
    for name, task in missing.items():
        if name not in artifacts and name != REPORT:
            option = "toolchain" if name == "training" else name
            raise UserError(
                f"the run {run_id} has no finished artifact {name!r} of its step {task}",
                f"if the step reused the result of another run, pass --{option} URI as well, as the interface shows it",
            )
    return artifacts | {"run": run.run_id}


def _folder(run: KfpRun) -> ObjectUri:
    """Return the folder of a run's artifacts. UserError if it is unknown, or not in object storage that others read."""
    run_id, folder = run.run_id, run.artifact_folder
    by_hand = (
        "in place of --run and the server, pass --policy, --evaluation, --corpus, --toolchain, --release-report and "
        f"--run-id {run_id}, with the URIs that the interface shows"
    )
    if not artifact_root_of(run.spec) and folder.partition("://")[0] in KFP_SCHEMES:
        raise UserError(
            f"the artifacts of the run {run_id} are at {folder}, where Kubeflow Pipelines copies them from pods: the "
            "next run could not read the policy",
            "train with --artifact-root s3://BUCKET/PATH or --pipeline-root gs://BUCKET/PATH",
        )
    return require_folder(run, folder, by_hand, by_hand)


def _require_ended(run: ServerRun) -> None:
    """Raise UserError unless a run has ended, and either succeeded or got as far as the report on the release clang."""
    if run.state not in RUN_ENDED:
        raise UserError(f"the run {run.run_id} has not ended: {describe_state(run.state)}", "mlgo pipeline watch RUN")
    reported = any(task.name == TASKS[REPORT] and task.state == "SUCCEEDED" for task in run.tasks)
    if run.state != "SUCCEEDED" and not reported:
        raise UserError(
            f"the run {run.run_id} has no finished step {TASKS[REPORT]}, which says how the release clang does: "
            f"{describe_state(run.state)}",
            "see its log, and run the pipeline again",
        )
