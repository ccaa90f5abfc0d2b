"""Requests to a KFP server's REST API without kfp, which steps and the environment for training do not have."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from components.platform.errors import UserError
from pipelines.submit.artifact_root import artifact_root_of
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
POD_TOKEN = "/var/run/secrets/kubeflow/pipelines/token"
HOST_VARIABLE = "MLGO_KFP_HOST"
"""Environment variable of a pod with the URL of KFP's API, where it is not at _IN_CLUSTER."""
_IN_CLUSTER = "http://ml-pipeline.kubeflow:8888"
"""KFP's API in a cluster that has it in its usual namespace."""
_API = "/apis/v2beta1"
_NAMESPACE = "kubeflow"
"""Namespace of the pods of a KFP with one user, where it was installed as its documentation says."""
_RUN = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]*")
_LAUNCHER_LINE = re.compile(r"(?P<severity>[IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \w+\.go:\d+\] ")
"""As glog writes it."""
_ARGO_LINE = re.compile(r"time=\S+ level=\w+ msg=.* argo=true")
_EXIT_STATUS = re.compile(r": exit status \d+\s*$")
"""The end of the launcher's error where the step's program failed, which has said why."""


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

    def pipeline_spec(self, run: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the PipelineSpec of a run, which it has itself or in a stored version; {} if in none."""
        spec, stored = run.get("pipeline_spec"), run.get("pipeline_version_reference")
        if not spec and isinstance(stored, Mapping):
            pipeline, version = stored.get("pipeline_id"), stored.get("pipeline_version_id")
            spec = self.ask("GET", f"pipelines/{pipeline}/versions/{version}").get("pipeline_spec")
        if isinstance(spec, Mapping):
            spec = spec.get("pipeline_spec", spec)  # with settings for Kubernetes next to it
        return spec if isinstance(spec, Mapping) else {}

    def artifact_folder(self, run: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
        """Return where the artifacts of a run are, "" if it has neither an artifact root nor its own pipeline root.

        The driver writes PIPELINE_ROOT/PIPELINE/RUN_ID/TASK/UUID/ARTIFACT (backend/src/v2: metadata.GetPipeline,
        driver.provisionOutputs), with a UUID for each attempt of a task; the API does not say so. Steps write the same
        below an artifact root.

        Args:
            spec: from `pipeline_spec`.
        """
        settings, info = run.get("runtime_config"), spec.get("pipelineInfo")
        root = artifact_root_of(spec) or (settings.get("pipeline_root") if isinstance(settings, Mapping) else None)
        pipeline = info.get("name") if isinstance(info, Mapping) else None
        if not root or not pipeline:
            return ""
        return f"{str(root).partition('?')[0].rstrip('/')}/{pipeline}/{run.get('run_id')}"

    def pod_log(self, run_id: str, pod: str, day: str = "") -> str:
        """Return the log of a step from the API server or the user interface, "" if neither has it.

        Argo's emissary and KFP's launcher, which run the step's program, write to the same log. Of their lines only the
        launcher's own errors are returned.

        Args:
            day: when the run was created, YYYY-MM-DD, which is part of the place of archived logs.
        """
        namespace = {"podnamespace": self._server.namespace} if self._server.namespace else {}
        query = urlencode({"podname": pod, "runid": run_id, "createdat": day, **namespace})
        for route in (f"/apis/v1alpha1/runs/{run_id}/nodes/{pod}/log", f"/k8s/pod/logs?{query}"):
            try:
                answer = self._send("GET", route)
            except UserError:
                continue
            text = answer.data.decode("utf-8", "replace")
            # The API server answers 200 before it looks; the object of an error follows then.
            if text.strip() and not text.lstrip().startswith('{"error_message"'):
                return _without_launcher(text)
        return ""

    def task_log(self, run: Mapping[str, Any], pods: Iterable[str]) -> list[str]:
        """Return the lines of the log of the first of a task's pods that has one; [] if none has."""
        day = str(run.get("created_at") or "")[:10]
        logs = (self.pod_log(str(run.get("run_id")), pod, day) for pod in pods)
        return next(filter(None, logs), "").rstrip().splitlines()

    @property
    def pods_namespace(self) -> str:
        """Return the namespace of the pods of runs."""
        return self._server.namespace or _NAMESPACE

    def pod(self, name: str) -> dict[str, Any]:
        """Return a pod of Kubernetes through the user interface, {} if it does not show it."""
        query = urlencode({"podname": name, "podnamespace": self.pods_namespace})
        try:
            return self._request("GET", f"/k8s/pod?{query}")
        except UserError:
            return {}

    def _request(self, method: str, route: str, body: Any = None) -> dict[str, Any]:
        answer = self._send(method, route, body)
        try:
            document = json.loads(answer.data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise NotFound(f"{route.partition('?')[0]} is no JSON object", "check the address")
        return document

    def _send(self, method: str, route: str, body: Any = None) -> Any:
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
        return answer


def _without_launcher(log: str) -> str:
    """Return a log without what Argo's and KFP's launchers report, a dump of the step's outputs among it.

    A log of nothing else is returned as it is: it may have the exit status of a program that says nothing.
    """
    lines = []
    in_dump = False
    for line in log.splitlines(keepends=True):
        if _ARGO_LINE.match(line):
            in_dump = False
        elif found := _LAUNCHER_LINE.match(line):
            failed = found["severity"] in "EF"
            in_dump = not failed and line.endswith(": {\n")
            if failed and not _EXIT_STATUS.search(line):
                lines.append(line)
        elif in_dump:
            in_dump = not line.startswith("}")
        else:
            lines.append(line)
    return "".join(lines) or log


def server_of_pod() -> KfpServer:
    """Return the KFP server whose API a pod of a run asks."""
    # In a namespace with KFP, Kubernetes sets the variables of its service.
    address, port = (os.environ.get(f"ML_PIPELINE_SERVICE_{name}") for name in ("HOST", "PORT_HTTP"))
    host = os.environ.get(HOST_VARIABLE) or (f"http://{address}:{port}" if address and port else _IN_CLUSTER)
    return KfpServer(host, in_cluster=Path(os.environ.get(POD_TOKEN_VARIABLE) or POD_TOKEN).is_file())


def check_run_id(run_id: str) -> None:
    """Raise UserError for a run's name or page instead of its ID, which becomes part of a URL."""
    if not _RUN.fullmatch(run_id):
        raise UserError(f"{run_id!r} is no ID of a run", "pass the last part of the address of the run's page")


def run_state(run: Mapping[str, Any]) -> str:
    """Return the state of a run, CANCELED for one that was.

    KFP stores how the workflow ended, which is FAILED for a canceled one; only the history of its states has CANCELING
    then. A run that was canceled and retried has RUNNING after it.
    """
    state = str(run.get("state") or "")
    if state != "FAILED":
        return state
    history = run.get("state_history")
    states = [str(entry.get("state")) for entry in history or () if isinstance(entry, Mapping)]
    for earlier in reversed(states):
        if earlier in ("RUNNING", "PENDING"):
            break
        if earlier == "CANCELING":
            return "CANCELED"
    return state


def _token(server: KfpServer) -> str:
    if server.in_cluster:
        return read_token(Path(os.environ.get(POD_TOKEN_VARIABLE) or POD_TOKEN), in_cluster=True)
    return read_token(server.token_file, in_cluster=False) if server.token_file else server.token
