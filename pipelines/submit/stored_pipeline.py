"""Start a pipeline that is stored on a KFP server, without kfp, which the images of steps do not have.

The stored version has the digests of its images, so images.json is not needed. The parameters are checked against the
compiled pipeline of this package; the server refuses those that the stored version does not have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.platform.console import say
from components.platform.errors import UserError
from pipelines.submit.artifact_root import OPTION, artifact_root_of
from pipelines.submit.kfp_client import KfpServer
from pipelines.submit.kfp_rest import KfpRest


@dataclass(frozen=True)
class StoredRun:
    """A run of the newest version of a stored pipeline.

    Attributes:
        pipeline: display name of the pipeline.
        name: display name of the run; a run of this name in the experiment is not started again.
        parameters: with their types.
        pipeline_root, account: as of prepare.RunRequest.
        experiment: display name of the experiment, which is created if it does not exist.
        artifact_root: the one that the stored version must have been uploaded with; "" for any or none.
    """

    pipeline: str
    name: str
    parameters: Mapping[str, Any]
    pipeline_root: str
    account: str
    experiment: str
    artifact_root: str = ""


def start_stored(server: KfpServer, run: StoredRun) -> str:
    """Start the run, unless the experiment has one of its name; return its ID.

    The server does not look for equal runs itself: a request whose answer was lost, and that is sent again, would train
    twice.

    Raises:
        UserError: the server has no such pipeline, or its newest version another artifact root; or the server does not
            answer, refuses, or answers with something else.
    """
    api = KfpRest(server)
    api.require_usable(server.namespace)
    named = {"namespace": server.namespace}
    found = _objects(api.ask("GET", "pipelines", filter=name_is(run.pipeline), **named), "pipelines")
    if len(found) != 1:
        raise UserError(
            f"KFP at {server.host} has {len(found) or 'no'} pipelines named {run.pipeline!r}",
            "store it with mlgo pipeline upload, or pass another name",
        )
    pipeline = _identity(found[0], "pipeline_id")
    versions = api.ask("GET", f"pipelines/{pipeline}/versions", page_size=1, sort_by="created_at desc")
    if not (newest := _objects(versions, "pipeline_versions")):
        raise UserError(f"the pipeline {run.pipeline} has no version", "mlgo pipeline upload")
    version = {"pipeline_id": pipeline, "pipeline_version_id": _identity(newest[0], "pipeline_version_id")}
    if run.artifact_root:
        _check_artifact_root(run, artifact_root_of(api.pipeline_spec({"pipeline_version_reference": version})))
    experiments = _objects(api.ask("GET", "experiments", filter=name_is(run.experiment), **named), "experiments")
    experiment = _identity(
        experiments[0]
        if experiments
        else api.ask("POST", "experiments", {"display_name": run.experiment} | ({**named} if server.namespace else {})),
        "experiment_id",
    )
    # Without the namespace, which is the experiment's.
    started = api.ask("GET", "runs", experiment_id=experiment, filter=name_is(run.name))
    if runs := _objects(started, "runs"):
        say(f"the experiment {run.experiment} has a run {run.name} already: no other one is started")
        return _identity(runs[0], "run_id")
    body = {
        "display_name": run.name,
        "experiment_id": experiment,
        "pipeline_version_reference": version,
        "runtime_config": {"parameters": dict(run.parameters), "pipeline_root": run.pipeline_root},
        "service_account": run.account,
    }
    return _identity(api.ask("POST", "runs", body), "run_id")


def _check_artifact_root(run: StoredRun, stored: str) -> None:
    """Raise UserError unless the artifact root in the commands of the stored steps is the run's."""
    if stored.rstrip("/") != run.artifact_root.rstrip("/"):
        raise UserError(
            f"the newest version of the pipeline {run.pipeline} was stored with "
            f"{f'{OPTION} {stored}' if stored else f'no {OPTION}'}, not with {run.artifact_root}",
            f"mlgo pipeline upload {OPTION} {run.artifact_root}, or pass the stored one",
        )


def _objects(answer: Mapping[str, Any], name: str) -> list[Any]:
    """Return the list `name` of an answer; the API omits an empty one."""
    found = answer.get(name) or []
    if not isinstance(found, list):
        raise UserError(f"KFP answers with {name} that are no list", "check the address")
    return found


def _identity(answer: Any, name: str) -> str:
    """Return an object's ID. UserError if it has none."""
    found = answer.get(name) if isinstance(answer, Mapping) else None
    if not isinstance(found, str) or not found:
        raise UserError(f"KFP answers with an object that has no {name}", "check the address")
    return found


def name_is(name: str) -> str:
    """Return a filter of the API (filter.proto) for the objects with this display name."""
    return json.dumps({"predicates": [{"operation": 1, "key": "display_name", "stringValue": name}]})
