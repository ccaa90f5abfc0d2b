"""Start a pipeline that is stored on a KFP server, without kfp, which the images of steps do not have.

The stored version has the digests of its images, so images.json is not needed. The parameters are checked against the
compiled pipeline of this package; the server refuses those that the stored version does not have.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from components.core.console import UserError, say
from pipelines.submit.kfp_client import (
    CERTIFICATES_VARIABLE,
    KfpServer,
    NotFound,
    answered,
    check_health,
    check_namespace,
    read_token,
    refusal,
    refuse_web_page,
)
from pipelines.submit.polling import TIMEOUT_S

POD_TOKEN_VARIABLE = "KF_PIPELINES_SA_TOKEN_PATH"
_POD_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"


@dataclass(frozen=True)
class StoredRun:
    """A run of the newest version of a stored pipeline.

    Attributes:
        pipeline: display name of the pipeline.
        name: display name of the run; a run of this name in the experiment is not started again.
        parameters: with their types.
        pipeline_root, account: as of prepare.RunRequest.
        experiment: display name of the experiment, which is created if it does not exist.
    """

    pipeline: str
    name: str
    parameters: Mapping[str, Any]
    pipeline_root: str
    account: str
    experiment: str


def start_stored(server: KfpServer, run: StoredRun) -> str:
    """Start the run, unless the experiment has one of its name; return its ID.

    The server does not look for equal runs itself: a request whose answer was lost, and that is sent again, would train
    twice.

    Raises:
        UserError: the server has no such pipeline, does not answer, refuses, or answers with something else.
    """
    import urllib3

    pool = urllib3.PoolManager(ca_certs=os.environ.get(CERTIFICATES_VARIABLE) or None)
    token = _token(server)
    headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def ask(method: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
        given = {name: value for name, value in query.items() if value}
        url = f"{server.host.rstrip('/')}{path}" + (f"?{urlencode(given)}" if given else "")
        answer = answered(
            server,
            lambda: pool.request(
                method, url, json=body, headers=headers, timeout=TIMEOUT_S, retries=False, redirect=False
            ),
        )
        if answer.status >= 300:
            raise refusal(
                server,
                SimpleNamespace(status=answer.status, reason=answer.reason, headers=answer.headers, body=answer.data),
            )
        refuse_web_page(server, answer.headers.get("Content-Type"))
        try:
            document = json.loads(answer.data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise NotFound(f"{path} is no JSON object", "check the address")
        return document

    api = "/apis/v2beta1"
    check_namespace(server, check_health(lambda route: ask("GET", route), server), server.namespace)
    named = {"namespace": server.namespace}
    found = _objects(ask("GET", f"{api}/pipelines", filter=name_is(run.pipeline), **named), "pipelines")
    if len(found) != 1:
        raise UserError(
            f"KFP at {server.host} has {len(found) or 'no'} pipelines named {run.pipeline!r}",
            "store it with mlgo pipeline upload, or pass another name",
        )
    pipeline = _identity(found[0], "pipeline_id")
    versions = ask("GET", f"{api}/pipelines/{pipeline}/versions", page_size=1, sort_by="created_at desc")
    if not (newest := _objects(versions, "pipeline_versions")):
        raise UserError(f"the pipeline {run.pipeline} has no version", "mlgo pipeline upload")
    experiments = _objects(ask("GET", f"{api}/experiments", filter=name_is(run.experiment), **named), "experiments")
    experiment = _identity(
        experiments[0]
        if experiments
        else ask(
            "POST", f"{api}/experiments", {"display_name": run.experiment} | ({**named} if server.namespace else {})
        ),
        "experiment_id",
    )
    # Without the namespace, which is the experiment's.
    started = ask("GET", f"{api}/runs", experiment_id=experiment, filter=name_is(run.name))
    if runs := _objects(started, "runs"):
        say(f"the experiment {run.experiment} has a run {run.name} already: no other one is started")
        return _identity(runs[0], "run_id")
    body = {
        "display_name": run.name,
        "experiment_id": experiment,
        "pipeline_version_reference": {
            "pipeline_id": pipeline,
            "pipeline_version_id": _identity(newest[0], "pipeline_version_id"),
        },
        "runtime_config": {"parameters": dict(run.parameters), "pipeline_root": run.pipeline_root},
        "service_account": run.account,
    }
    return _identity(ask("POST", f"{api}/runs", body), "run_id")


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


def _token(server: KfpServer) -> str:
    if server.in_cluster:
        return read_token(Path(os.environ.get(POD_TOKEN_VARIABLE) or _POD_TOKEN), in_cluster=True)
    return read_token(server.token_file, in_cluster=False) if server.token_file else server.token


def name_is(name: str) -> str:
    """Return a filter of the API (filter.proto) for the objects with this display name."""
    return json.dumps({"predicates": [{"operation": 1, "key": "display_name", "stringValue": name}]})
