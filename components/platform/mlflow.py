"""Tells an MLflow server of a training and its evaluation, by its REST API (mlflow.org/docs/latest/rest-api.html).

MLflow's own variables turn it on: MLFLOW_TRACKING_URI; MLFLOW_RUN_ID for a run that exists, or MLFLOW_EXPERIMENT_NAME;
MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD. MLflow's client is not used: what
tf-agents allows of it (typing-extensions 4.5) is of 2024, with eleven dependencies.

No step fails because of the server: what it misses is sent with what follows, and a message says what it lacks.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.downloads.http_download import is_http_url
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import REMOTE_SCHEMES, ObjectUri

URI_VARIABLE, RUN_VARIABLE, EXPERIMENT_VARIABLE = "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_NAME"
TOKEN_VARIABLE, USER_VARIABLE = "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME"
PASSWORD_VARIABLE = "MLFLOW_TRACKING_PASSWORD"
VARIABLES = (URI_VARIABLE, RUN_VARIABLE, EXPERIMENT_VARIABLE, TOKEN_VARIABLE, USER_VARIABLE, PASSWORD_VARIABLE)
EXPERIMENT = "mlgo"
"""Experiment of new runs without EXPERIMENT_VARIABLE."""
POLICY_TAG = "mlgo.policy"
"""Tag of a run with the digest of the policy that it trained; the policy's evaluation goes to the same run."""
_API = "api/2.0/mlflow"
_TIMEOUT_S = 20.0
_INTERVAL_S, _PAUSE_S = 10.0, 60.0
"""Time after values were sent, and after a failure, in which none are; the end does not wait."""
_VALUES_PER_REQUEST = 100
"""The server's limit for parameters; for metrics it is 1,000."""
_MAX_TEXT = 6000
"""The server's limit for a parameter, in characters."""
_PASSWORD = re.compile(r"://[^/@]*@")
_NOT_IN_NAMES = re.compile(r"[^\w./ -]")

Metric = tuple[str, float, int]
"""Name, value and step."""


class Tracker:
    """A run of an MLflow server; nothing happens without URI_VARIABLE.

    Args:
        name: of a new run.
        tags: of a new run, without quotes. The newest run that has them is continued, so that a resumed training has
            one run.
        continues_finished: also a run that ended.
    """

    def __init__(self, name: str, tags: Mapping[str, str], continues_finished: bool = False) -> None:
        self._name, self._tags, self._continues_finished = name, dict(tags), continues_finished
        self._run, self._artifacts = "", ""
        self._known_step = 0
        self._silent_until_s = 0.0
        self._url = os.environ.get(URI_VARIABLE, "").strip().rstrip("/")
        if self._url and not is_http_url(self._url):
            say(f"MLflow is told nothing: {URI_VARIABLE} is not the http:// or https:// URL of a server")
            self._url = ""
        self._shown = _PASSWORD.sub("://", self._url)

    def log(self, metrics: Sequence[Metric] = (), parameters: Mapping[str, object] | None = None) -> bool:
        """Send values, and return whether the server has them. Steps that a continued run has, NaN and
        infinity are left out."""
        now_ms = _now_ms()
        texts = [{"key": _name(key), "value": str(value)[:_MAX_TEXT]} for key, value in (parameters or {}).items()]

        def send() -> None:
            run = self._started()
            values = [
                {"key": _name(key), "value": value, "step": step, "timestamp": now_ms}
                for key, value, step in metrics
                if math.isfinite(value) and not 0 < step <= self._known_step
            ]
            for start in range(0, max(len(values), len(texts)), _VALUES_PER_REQUEST):
                part = slice(start, start + _VALUES_PER_REQUEST)
                self._call("runs/log-batch", {"run_id": run, "metrics": values[part], "params": texts[part]})

        return self._try(send)

    def end(self, status: str, tags: Mapping[str, str], files: Mapping[str, Path]) -> None:
        """Upload files as artifacts, by their names there, and say how the run ended.

        Args:
            status: FINISHED or KILLED. A run that RUN_VARIABLE names is not ended here.
        """

        def send() -> None:
            run = self._started()
            for key, value in tags.items():
                self._call("runs/set-tag", {"run_id": run, "key": key, "value": value})
            self._upload(files)
            if not os.environ.get(RUN_VARIABLE):
                self._call("runs/update", {"run_id": run, "status": status, "end_time": _now_ms()})

        self.hurry()
        self._try(send)

    def hurry(self) -> None:
        """Let the next values be sent at once."""
        self._silent_until_s = 0.0

    def _try(self, send: Callable[[], None]) -> bool:
        if not self._url or time.monotonic() < self._silent_until_s:
            return False
        try:
            send()
        except UserError as error:
            say(f"warning: MLflow was not told: {error.problem}; {error.remedy}")
            self._silent_until_s = time.monotonic() + _PAUSE_S
            return False
        self._silent_until_s = time.monotonic() + _INTERVAL_S
        return True

    def _started(self) -> str:
        """Return the ID of the run; find or create it before."""
        if not self._run:
            if named := os.environ.get(RUN_VARIABLE, ""):
                run = self._call("runs/get", query={"run_id": named})["run"]
            else:
                experiment = self._experiment()
                run = self._earlier(experiment) or self._created(experiment)
            self._run, self._artifacts = str(run["info"]["run_id"]), str(run["info"]["artifact_uri"])
            self._known_step = max((int(one["step"]) for one in run.get("data", {}).get("metrics", [])), default=0)
            say(f"MLflow: run {self._run} at {self._shown}")
        return self._run

    def _experiment(self) -> str:
        name = os.environ.get(EXPERIMENT_VARIABLE, "") or EXPERIMENT
        found = self._call("experiments/get-by-name", query={"experiment_name": name}, may_be_missing=True)
        if found:
            return str(found["experiment"]["experiment_id"])
        return str(self._call("experiments/create", {"name": name})["experiment_id"])

    def _earlier(self, experiment: str) -> dict[str, Any] | None:
        conditions = [f"tags.`{key}` = '{value}'" for key, value in self._tags.items()]
        if not self._continues_finished:
            conditions.append("attributes.status != 'FINISHED'")
        query = {
            "experiment_ids": [experiment],
            "filter": " and ".join(conditions),
            "order_by": ["attributes.start_time DESC"],
            "max_results": 1,
        }
        runs = self._call("runs/search", query).get("runs", [])
        return dict(runs[0]) if runs else None

    def _created(self, experiment: str) -> dict[str, Any]:
        tags = [{"key": key, "value": value} for key, value in self._tags.items()]
        new = {"experiment_id": experiment, "run_name": self._name, "start_time": _now_ms(), "tags": tags}
        return dict(self._call("runs/create", new)["run"])

    def _upload(self, files: Mapping[str, Path]) -> None:
        place = urlsplit(self._artifacts)
        if place.scheme == "mlflow-artifacts":
            for name, path in files.items():
                with path.open("rb") as content:
                    route = quote(f"{place.path.strip('/')}/{name}")
                    self._send("PUT", f"api/2.0/mlflow-artifacts/artifacts/{route}", data=content)
        elif place.scheme in REMOTE_SCHEMES:
            folder = ObjectUri(place.scheme, place.netloc, place.path.strip("/"))
            store_of(folder).upload([(path, folder / name) for name, path in files.items()])
        elif files:
            raise UserError(
                f"only the server's machine can write its artifacts, at {self._artifacts}",
                "start the server with --artifacts-destination",
            )

    def _call(
        self,
        route: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        may_be_missing: bool = False,
    ) -> dict[str, Any]:
        """Return the answer to a request, {} for what does not exist, if that may be."""
        method = "GET" if body is None else "POST"
        document = self._send(method, f"{_API}/{route}", may_be_missing, json=body, params=query)
        if not isinstance(document, dict):
            raise UserError(f"{self._shown} does not answer as MLflow does", f"check {URI_VARIABLE}")
        return document

    def _send(self, method: str, route: str, may_be_missing: bool = False, **more: Any) -> Any:
        import requests

        token, user = os.environ.get(TOKEN_VARIABLE, "").strip(), os.environ.get(USER_VARIABLE, "")
        login = (user, os.environ.get(PASSWORD_VARIABLE, "")) if user else None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            # Redirects are not followed: a page to log in would answer with status 200.
            answer = requests.request(
                method,
                f"{self._url}/{route}",
                headers=headers,
                auth=login,
                timeout=_TIMEOUT_S,
                allow_redirects=False,
                **more,
            )
            document = answer.json() if answer.content else {}
        except requests.JSONDecodeError:
            document = None
        except requests.exceptions.InvalidHeader:  # its message has the token in it
            raise UserError(f"{TOKEN_VARIABLE} is not one token", "set it to the token, without line breaks") from None
        except (requests.RequestException, OSError) as error:
            raise UserError(f"{self._shown} does not answer ({type(error).__name__})", "start it") from None
        if answer.status_code == 404 and may_be_missing and isinstance(document, dict) and "error_code" in document:
            return {}
        if answer.status_code >= 300:
            message = document.get("message") if isinstance(document, dict) else None
            raise UserError(
                f"{self._shown} refuses {route.removeprefix(_API)}: status {answer.status_code}"
                + (f", {message}" if message else ""),
                f"check {TOKEN_VARIABLE}" if answer.status_code in (401, 403) else f"check {URI_VARIABLE}",
            )
        return document


def _now_ms() -> int:
    return int(time.time() * 1000)


def _name(name: str) -> str:
    """Return a metric's or a parameter's name as the server allows it."""
    return _NOT_IN_NAMES.sub("_", name)
