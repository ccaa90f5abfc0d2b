"""Requests to a KFP server's REST API without kfp, which steps and the environment for training do not have."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from components.core.console import UserError
from pipelines.submit.kfp_client import (
    CERTIFICATES_VARIABLE,
    KfpServer,
    answered,
    check_health,
    check_namespace,
    read_token,
    refusal,
    refuse_web_page,
)
from pipelines.submit.polling import TIMEOUT_S, NotFound

POD_TOKEN_VARIABLE = "KF_PIPELINES_SA_TOKEN_PATH"
_POD_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"
_API = "/apis/v2beta1"
_RUN = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]*")


class KfpRest:
    """The routes of a server below /apis/v2beta1/."""

    def __init__(self, server: KfpServer) -> None:
        self._server = server

    @cached_property
    def _pool(self) -> Any:
        import urllib3

        return urllib3.PoolManager(ca_certs=os.environ.get(CERTIFICATES_VARIABLE) or None)

    def require_usable(self, namespace: str | None = None) -> None:
        """Raise UserError if the server is no KFP server, is too old, or needs another namespace.

        Args:
            namespace: where something is created; None if nothing is.
        """
        multi_user = check_health(lambda route: self._request("GET", route), self._server)
        check_namespace(self._server, multi_user, namespace)

    def ask(self, method: str, route: str, body: Any = None, **query: Any) -> dict[str, Any]:
        """Return the JSON object that the server answers; empty values of `query` are left out.

        Raises:
            UserError: the server refuses, or answers with something else.
            NoAnswer: it does not answer; a retry may help.
        """
        given = {name: value for name, value in query.items() if value}
        return self._request(method, f"{_API}/{route}" + (f"?{urlencode(given)}" if given else ""), body)

    def get_run(self, run_id: str) -> dict[str, Any]:
        """Return a run. NotFound if there is none."""
        return self.ask("GET", f"runs/{run_id}")

    def pipeline_of(self, run: Mapping[str, Any]) -> str:
        """Return the name in the PipelineSpec of a run, which it has itself or in a stored version; "" if in none."""
        spec, stored = run.get("pipeline_spec"), run.get("pipeline_version_reference")
        if not spec and isinstance(stored, Mapping):
            pipeline, version = stored.get("pipeline_id"), stored.get("pipeline_version_id")
            spec = self.ask("GET", f"pipelines/{pipeline}/versions/{version}").get("pipeline_spec")
        if isinstance(spec, Mapping):
            spec = spec.get("pipeline_spec", spec)  # with settings for Kubernetes next to it
        try:
            return str(spec["pipelineInfo"]["name"])  # type: ignore[index]
        except (KeyError, TypeError):
            return ""

    def artifact_folder(self, run: Mapping[str, Any]) -> str:
        """Return where KFP's driver puts the artifacts of a run, "" if the run has no pipeline root of its own.

        The driver writes PIPELINE_ROOT/PIPELINE/RUN_ID/TASK/UUID/ARTIFACT (backend/src/v2: metadata.GetPipeline,
        driver.provisionOutputs), with a UUID for each attempt of a task; the API does not say so.
        """
        settings = run.get("runtime_config")
        root = settings.get("pipeline_root") if isinstance(settings, Mapping) else None
        if not root or not (pipeline := self.pipeline_of(run)):
            return ""
        return f"{str(root).partition('?')[0].rstrip('/')}/{pipeline}/{run.get('run_id')}"

    def _request(self, method: str, route: str, body: Any = None) -> dict[str, Any]:
        server, token = self._server, _token(self._server)
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        answer = answered(
            server,
            lambda: self._pool.request(
                method,
                f"{server.host.rstrip('/')}{route}",
                json=body,
                headers=headers,
                timeout=TIMEOUT_S,
                retries=False,
                redirect=False,
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
            raise NotFound(f"{route.partition('?')[0]} is no JSON object", "check the address")
        return document


def check_run_id(run_id: str) -> None:
    """Raise UserError for a run's name or page instead of its ID, which becomes part of a URL."""
    if not _RUN.fullmatch(run_id):
        raise UserError(f"{run_id!r} is no ID of a run", "pass the last part of the address of the run's page")


def task_states(run: Mapping[str, Any]) -> dict[str, str]:
    """Return the state of each task of a run by its display name, without tasks that have none yet."""
    details = run.get("run_details") or {}
    listed = details.get("task_details") if isinstance(details, Mapping) else None
    tasks = [task for task in listed or [] if isinstance(task, Mapping) and task.get("state")]
    return {str(task["display_name"]): str(task["state"]) for task in tasks if task.get("display_name")}


def _token(server: KfpServer) -> str:
    if server.in_cluster:
        return read_token(Path(os.environ.get(POD_TOKEN_VARIABLE) or _POD_TOKEN), in_cluster=True)
    return read_token(server.token_file, in_cluster=False) if server.token_file else server.token
