"""Artifacts of a run that ended on a server, for `mlgo retrain promote --run ID`.

Vertex AI names them in the PipelineJob. KFP's API has no artifacts (2.17), so they are looked for where KFP's driver
puts them, or a step with an artifact root: see KfpRest.artifact_folder. Drivers of older versions have no UUID in the
path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from components.platform.errors import UserError
from components.platform.storage import MANIFEST
from components.platform.storage.object_storage.object_store import StoredObject
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import ObjectUri, parse_location
from pipelines.parameters.on_server import KFP_SCHEMES
from pipelines.submit.artifact_root import artifact_root_of
from pipelines.submit.kfp_client import KfpServer
from pipelines.submit.kfp_rest import KfpRest, check_run_id, run_state
from pipelines.submit.kfp_tasks import tasks_of
from pipelines.submit.polling import RUN_ENDED
from pipelines.submit.vertex import VertexServer, artifact_uri, get_job, job_state, task_details

REPORT = "release_report"
TASKS = {
    "policy": "ppo",
    "evaluation": "evaluation",
    "corpus": "corpus",
    "training": "toolchain-training",
    REPORT: "release-report",
}
"""Artifact that a promotion reads -> task of the pipeline that writes it."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NEVER = datetime.min.replace(tzinfo=UTC)


def server_run_artifacts(
    server: KfpServer | VertexServer, run: str, given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the URIs of the artifacts of a run that `pipelines.retrain.promote.promotion` reads, and of "training".

    Args:
        run: ID of the run, or resource name on Vertex AI; it is the value of the key "run".
        given: URIs that are known, by the keys of TASKS; the others are looked up.

    Raises:
        UserError: there is no such run, it has not ended, its report on the release clang failed, its pipeline root is
            unknown or KFP copies artifacts there, or an artifact is missing.
    """
    known = {name: uri for name, uri in (given or {}).items() if uri}
    found = _on_vertex(server, run) if isinstance(server, VertexServer) else _on_kfp(server, run, set(known))
    found |= known
    for name, task in TASKS.items():
        if name not in found and name != REPORT:
            option = "toolchain" if name == "training" else name
            raise UserError(
                f"the run {run} has no finished artifact {name!r} of its step {task}",
                f"if the step reused the result of another run, pass --{option} URI as well, as the interface shows it",
            )
    return found


def _on_vertex(server: VertexServer, run: str) -> dict[str, str]:
    job = get_job(server, run)
    tasks = task_details(job)
    _require_ended(run, job_state(job), {name: str(task.get("state", "")) for name, task in tasks.items()})
    uris = {name: artifact_uri(tasks.get(task, {}), name) for name, task in TASKS.items()}
    return {name: uri for name, uri in uris.items() if uri} | {"run": server.job_name(run)}


def _on_kfp(server: KfpServer, run_id: str, known: set[str]) -> dict[str, str]:
    check_run_id(run_id)
    api = KfpRest(server)
    api.require_usable()
    run = {"run_id": run_id, **api.get_run(run_id)}
    spec = api.pipeline_spec(run)
    _require_ended(run_id, run_state(run), {task.name: task.state for task in tasks_of(run, spec)})
    folder = _folder(server, run_id, api.artifact_folder(run, spec), direct=bool(artifact_root_of(spec)))
    places = {name: _newest(folder / task, name) for name, task in TASKS.items() if name not in known}
    return {name: place for name, place in places.items() if place} | {"run": run_id}


def _folder(server: KfpServer, run_id: str, place: str, direct: bool) -> ObjectUri:
    """Return the folder of a run's artifacts. UserError if it is unknown, or not in object storage that others read.

    Args:
        direct: steps wrote the artifacts themselves, to an artifact root.
    """
    by_hand = (
        "in place of --run and the server, pass --policy, --evaluation, --corpus, --toolchain, --release-report and "
        f"--run-id {run_id}, with the URIs that the interface shows"
    )
    if not place:
        raise UserError(
            f"KFP at {server.host} does not say where the artifacts of the run {run_id} are: it has the server's "
            "default pipeline root, which is not in the API",
            by_hand,
        )
    if not direct and place.partition("://")[0] in KFP_SCHEMES:
        raise UserError(
            f"the artifacts of the run {run_id} are at {place}, where Kubeflow Pipelines copies them from pods: the "
            "next run could not read the policy",
            "train with --artifact-root s3://BUCKET/PATH or --pipeline-root gs://BUCKET/PATH",
        )
    where = parse_location(place)
    if not isinstance(where, ObjectUri):
        raise UserError(f"the artifacts of the run {run_id} are at {place}, not in object storage", by_hand)
    return where


def _newest(folder: ObjectUri, artifact: str) -> str:
    """Return the URI of an artifact of the newest attempt of a task that finished it, "" if there is none.

    Args:
        folder: of the task.
    """

    def is_manifest(stored: StoredObject) -> bool:
        attempt, _slash, rest = stored.name.removeprefix(f"{folder.path}/").partition("/")
        wanted = f"{artifact}/{MANIFEST}"
        return f"{attempt}/{rest}" == wanted or (rest == wanted and bool(_UUID.fullmatch(attempt)))

    finished = [stored for stored in store_of(folder).objects(folder) if is_manifest(stored)]
    if not finished:
        return ""
    newest = max(finished, key=lambda stored: (stored.updated or _NEVER, stored.name))
    return f"{folder.scheme}://{folder.bucket}/{newest.name.removesuffix(f'/{MANIFEST}')}"


def _require_ended(run: str, state: str, tasks: Mapping[str, str]) -> None:
    """Raise UserError unless a run has ended, and either succeeded or got as far as the report on the release clang."""
    if state not in RUN_ENDED:
        raise UserError(
            f"the run {run} has not ended: it is {state.lower() or 'not started'}", "mlgo pipeline watch RUN"
        )
    if state != "SUCCEEDED" and tasks.get(TASKS[REPORT]) != "SUCCEEDED":
        raise UserError(
            f"the run {run} is {state.lower()} and has no finished step {TASKS[REPORT]}, so nothing says how the "
            "release clang does",
            "see its log, and run the pipeline again",
        )
