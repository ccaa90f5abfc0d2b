"""Tells an MLflow server of a training and its evaluation, by its REST API (mlflow.org/docs/latest/rest-api.html).

MLflow's own variables turn it on: MLFLOW_TRACKING_URI; MLFLOW_RUN_ID for a run that exists, or MLFLOW_EXPERIMENT_NAME;
MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD. MLflow's client is not used: what
tf-agents allows of it (typing-extensions 4.5) is of 2024, with eleven dependencies.

A thread talks to the server, so that a step neither fails nor waits because of it, except a few seconds at its end.
"""

from __future__ import annotations

import math
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.launcher.json_request import read_token, request_json
from components.platform.storage.downloads.http_download import is_http_url
from components.platform.storage.downloads.retry import PassingFailure
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import REMOTE_SCHEMES, ObjectUri

URI_VARIABLE, RUN_VARIABLE, EXPERIMENT_VARIABLE = "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_NAME"
TOKEN_VARIABLE, USER_VARIABLE = "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME"
PASSWORD_VARIABLE = "MLFLOW_TRACKING_PASSWORD"
VARIABLES = (URI_VARIABLE, RUN_VARIABLE, EXPERIMENT_VARIABLE, TOKEN_VARIABLE, USER_VARIABLE, PASSWORD_VARIABLE)
EXPERIMENT = "mlgo"
"""Experiment of new runs without EXPERIMENT_VARIABLE."""
POLICY_TAG = "mlgo.policy"
"""Tag of a run with the digest of the policy that it trained or evaluated."""
_API = "api/2.0/mlflow"
_PAUSE_S, _LAST_PAUSE_S = 30.0, 1.0
"""Before a request is repeated; and at the end of the step."""
_LAST_ATTEMPTS = 3
"""Attempts of a request at the end of the step."""
_VALUES_PER_REQUEST = 100
"""The server's limit for parameters. For metrics it is 1,000, but its file store then takes ten times as long."""
_MAX_NAME, _MAX_TEXT = 250, 6000
"""The server's limits for the name of a value, and for a parameter, in characters."""
_PASSWORD = re.compile(r"://[^/@]*@")
_NOT_IN_NAMES = re.compile(r"[^\w./ -]|(?<=/)/+")

Metric = tuple[str, float, int]
"""Name, value and step."""


def open_settings() -> dict[str, str]:
    """Return the variables of the environment that say where runs go, and have no password in them."""
    settings = {name: os.environ.get(name, "") for name in (URI_VARIABLE, RUN_VARIABLE, EXPERIMENT_VARIABLE)}
    return {name: value for name, value in settings.items() if value and not _PASSWORD.search(value)}


class Tracker:
    """A run of an MLflow server; nothing happens without URI_VARIABLE.

    Args:
        name: of a new run.
        tags: of a new run.
        known_run: ID of the run that is continued, if it still exists.
        on_start: is called with the ID of the run, by the thread; its UserErrors are reported.
        parent_tags: the newest run with these tags becomes the parent of a new one.
    """

    def __init__(
        self,
        name: str,
        tags: Mapping[str, str],
        known_run: str = "",
        on_start: Callable[[str], None] = lambda run: None,
        parent_tags: Mapping[str, str] | None = None,
    ) -> None:
        self._name, self._tags, self._parent_tags = name, dict(tags), parent_tags
        self._known_run, self._on_start = known_run, on_start
        self._run, self._artifacts = "", ""
        self._known_steps: dict[str, int] = {}
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._said = ""
        self._complete = True
        self._thread: threading.Thread | None = None
        self._url = os.environ.get(URI_VARIABLE, "").strip().rstrip("/")
        if self._url and not is_http_url(self._url):
            say(f"MLflow is told nothing: {URI_VARIABLE} is not the http:// or https:// URL of a server")
            self._url = ""
        self._shown = _PASSWORD.sub("://", self._url)

    def log(self, metrics: Sequence[Metric] = (), parameters: Mapping[str, object] | None = None) -> None:
        """Send values. Steps that a continued run has, NaN and infinity are left out."""
        now_ms = _now_ms()
        texts = [{"key": _name(key), "value": str(value)[:_MAX_TEXT]} for key, value in (parameters or {}).items()]
        for start in range(0, len(texts), _VALUES_PER_REQUEST):
            # Alone: the server refuses a changed parameter with all that is in the request.
            self._add(partial(self._log_batch, params=texts[start : start + _VALUES_PER_REQUEST]))
        values = [
            {"key": _name(key), "value": value, "step": step, "timestamp": now_ms}
            for key, value, step in metrics
            if math.isfinite(value)
        ]
        for start in range(0, len(values), _VALUES_PER_REQUEST):
            self._add(partial(self._log_batch, metrics=values[start : start + _VALUES_PER_REQUEST]))

    def end(self, status: str, wait_s: float, tags: Mapping[str, str], files: Mapping[str, Path]) -> None:
        """Say how the run ended, upload files as artifacts, and wait for all of that.

        Args:
            status: FINISHED, FAILED or KILLED. A run that RUN_VARIABLE names is not ended here.
            wait_s: at most.
            files: by their names there.
        """
        for key, value in tags.items():
            self._add(partial(self._set_tag, key, value))
        if not os.environ.get(RUN_VARIABLE):
            self._add(partial(self._update, status, end_time=_now_ms()))
        if files:
            self._add(partial(self._upload, files))
        if self._thread is None:
            return
        self._jobs.put(None)
        self._ending.set()
        self._thread.join(wait_s)
        if self._thread.is_alive() or not self._complete:
            say(f"warning: the run of {self._name} at {self._shown} is not complete")

    @property
    def is_on(self) -> bool:
        """Whether the environment names a server."""
        return bool(self._url)

    @property
    def has_started(self) -> bool:
        """Whether there was something to send."""
        return self._thread is not None

    def _add(self, job: Callable[[], None]) -> None:
        if self.is_on:
            self._jobs.put(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            last_attempts = 0
            while True:
                try:
                    job()
                    break
                except PassingFailure as error:
                    self._warn(f"{error.problem}; {error.remedy}")
                    if self._ending.is_set():
                        last_attempts += 1
                        if last_attempts >= _LAST_ATTEMPTS:
                            self._complete = False
                            break
                        time.sleep(_LAST_PAUSE_S)
                    self._ending.wait(_PAUSE_S)
                except UserError as error:
                    self._give_up(f"{error.problem}; {error.remedy}")
                    break
                except Exception as error:  # not its text, which may have a password in it
                    self._give_up(f"{type(error).__name__}; check {URI_VARIABLE}")
                    break

    def _give_up(self, problem: str) -> None:
        self._warn(problem)
        self._complete = False

    def _warn(self, problem: str) -> None:
        if problem != self._said:
            say(f"warning: MLflow was not told: {problem}")
            self._said = problem

    def _log_batch(self, **values: list[dict[str, Any]]) -> None:
        run = self._started()
        if "metrics" in values:
            known = self._known_steps
            values["metrics"] = [one for one in values["metrics"] if one["step"] > known.get(one["key"], -1)]
        self._call("runs/log-batch", {"run_id": run, **values})

    def _set_tag(self, key: str, value: str) -> None:
        self._call("runs/set-tag", {"run_id": self._started(), "key": key, "value": value})

    def _update(self, status: str, **more: Any) -> None:
        self._call("runs/update", {"run_id": self._started(), "status": status, **more})

    def _started(self) -> str:
        """Return the ID of the run; find or create it before."""
        if not self._run:
            named = os.environ.get(RUN_VARIABLE, "")
            run = self._find(named or self._known_run)
            if run is None and named:
                raise UserError(f"{self._shown} has no run {named}", f"set {RUN_VARIABLE} to one that is there")
            run = run or self._created()
            self._artifacts = str(run["info"]["artifact_uri"])
            self._run = str(run["info"]["run_id"])
            if self._run == self._known_run:
                for one in run.get("data", {}).get("metrics", []):
                    self._known_steps[one["key"]] = int(one["step"])
            say(f"MLflow: run {self._run} at {self._shown}")
            if run["info"]["status"] != "RUNNING" and not named:
                self._update("RUNNING")
            self._on_start(self._run)
        return self._run

    def _find(self, run: str) -> dict[str, Any] | None:
        """Return a run; None if it does not exist or is deleted."""
        found = self._call("runs/get", query={"run_id": run}, missing="RESOURCE_DOES_NOT_EXIST") if run else {}
        return dict(found["run"]) if found and found["run"]["info"].get("lifecycle_stage") != "deleted" else None

    def _created(self) -> dict[str, Any]:
        experiment = self._experiment()
        tags = dict(self._tags)
        if self._parent_tags:
            query = {
                "experiment_ids": [experiment],
                "filter": " and ".join(f"tags.`{key}` = '{value}'" for key, value in self._parent_tags.items()),
                "order_by": ["attributes.start_time DESC"],
                "max_results": 1,
            }
            for run in self._call("runs/search", query).get("runs", []):
                tags["mlflow.parentRunId"] = run["info"]["run_id"]
        new = {
            "experiment_id": experiment,
            "run_name": self._name,
            "start_time": _now_ms(),
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
        }
        return dict(self._call("runs/create", new)["run"])

    def _experiment(self) -> str:
        name = os.environ.get(EXPERIMENT_VARIABLE, "") or EXPERIMENT
        query = {"experiment_name": name}
        found = self._call("experiments/get-by-name", query=query, missing="RESOURCE_DOES_NOT_EXIST")
        if not found:  # another step may create it at the same time
            self._call("experiments/create", {"name": name}, missing="RESOURCE_ALREADY_EXISTS")
            found = self._call("experiments/get-by-name", query=query)
        return str(found["experiment"]["experiment_id"])

    def _upload(self, files: Mapping[str, Path]) -> None:
        self._started()
        place = urlsplit(self._artifacts)
        if place.scheme == "mlflow-artifacts":
            for name, path in files.items():
                with path.open("rb") as content:
                    route = quote(f"{place.path.strip('/')}/{name}")
                    self._send("PUT", f"api/2.0/mlflow-artifacts/artifacts/{route}", data=content)
        elif place.scheme in REMOTE_SCHEMES:
            folder = ObjectUri(place.scheme, place.netloc, place.path.strip("/"))
            store_of(folder).upload([(path, folder / name) for name, path in files.items()])
        else:
            raise UserError(
                f"only the server's machine can write its artifacts, at {self._artifacts}",
                "start the server with --artifacts-destination",
            )

    def _call(
        self,
        route: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        missing: str = "",
    ) -> dict[str, Any]:
        """Return the answer to a request; {} if it is the error `missing`."""
        document = self._send("GET" if body is None else "POST", f"{_API}/{route}", missing, json=body, params=query)
        if not isinstance(document, dict):
            raise UserError(f"{self._shown} does not answer as MLflow does", f"check {URI_VARIABLE}")
        return document

    def _send(self, method: str, route: str, missing: str = "", **more: Any) -> Any:
        answer = request_json(method, f"{self._url}/{route}", self._shown, _log_in, **more)
        if answer.status < 300:
            return answer.document
        if missing and isinstance(answer.document, dict) and answer.document.get("error_code") == missing:
            return {}
        what = route.removeprefix(_API)[:60]
        problem = f"{self._shown} refuses {what}: status {answer.status}, {answer.message()}"
        if answer.status == 429 or answer.status >= 500:
            raise PassingFailure(problem, "see the server's log")
        if answer.status in (401, 403):
            raise UserError(problem, f"set {TOKEN_VARIABLE}, or the server's --allowed-hosts")
        raise UserError(problem, f"check {URI_VARIABLE}, {RUN_VARIABLE} and {EXPERIMENT_VARIABLE}")


def _log_in(request: Any) -> Any:
    """Add the login of the environment to a request."""
    from requests.auth import HTTPBasicAuth

    if token := read_token(TOKEN_VARIABLE):
        request.headers["Authorization"] = f"Bearer {token}"
    elif user := os.environ.get(USER_VARIABLE, ""):
        return HTTPBasicAuth(user.encode(), os.environ.get(PASSWORD_VARIABLE, "").encode())(request)
    return request


def _now_ms() -> int:
    return int(time.time() * 1000)


def _name(name: str) -> str:
    """Return the name of a value as the server allows it."""
    return _NOT_IN_NAMES.sub("_", name)[:_MAX_NAME]
