"""A run on a KFP server: its state, its tasks and their logs, where its artifacts are, why its pods wait."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.launcher.step_cost import is_cost_line
from components.platform.rayjob.pending_pods import pending_reason
from pipelines.smoke.rows import TABLE_HEADING, TABLE_STEP
from pipelines.spec import REPORT_STEP, starts_ray_itself
from pipelines.submit.artifacts.root import artifact_root_of
from pipelines.submit.kfp_client import KfpClient
from pipelines.submit.kfp_tasks import tasks_of
from pipelines.submit.polling import RUN_ENDED, TRAINING, NotFound, Task, describe_curve, describe_state

_WAITS_LOOKS = 6
"""Looks at a run in which a pod may be pending before it is asked why, and after which it is asked again."""
_LAST_LINES = 20
_LATE_LOOKS = 3
"""Looks after the end of a run for the states of its tasks, which KFP stores after that of the run."""
_RUN = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]*")
_LAUNCHER_LINE = re.compile(r"(?P<severity>[IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \w+\.go:\d+\] ")
"""As glog writes it."""
_DUMP = re.compile(r"(: |\] input \w+:)\{\n$")
"""The end of a line before a launcher's outputs, or one of a driver's inputs."""
_ARGO_LINE = re.compile(r"time=\S+ level=\w+ msg=.* argo=true")
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT[\d:.]+Z )?(INFO|WARNING|ERROR) ")
"""Before a line of a step with MLGO_LOG_FORMAT=timestamps; KFP's API leaves the time out."""
_TWICE = "two tasks have the same task name"
"""Of a driver's error after the pod of an earlier one was lost: Argo makes it again, and ML Metadata has both."""
LOST_DRIVER = (
    "the pod of a driver was lost, and since then KFP has two tasks of one name",
    "submit the pipeline again: the new run reuses the results of the steps that are done",
)
"""Problem and remedy of a run in whose log `lost_driver` finds this."""
_NO_CONTROLLER_S = 120.0
"""Time in which a controller that runs has started the first driver of a run."""
_EXIT_STATUS = re.compile(r": exit status \d+\s*$")
"""The end of the launcher's error where the step's program failed, which has said why."""


def lost_driver(log: str) -> bool:
    """Return whether a log is that of a driver after one whose pod was lost: no retry finishes such a run."""
    return _TWICE in log


class KfpRun:
    """A run, as the server last answered.

    Attributes:
        run_id: its ID.
        document: a V2beta1Run of the API.
        host: URL of the server.
        page: URL of the run's page.

    Raises:
        UserError: what is given is a run's name or page instead of its ID.
        NotFound: there is no such run.
    """

    def __init__(self, client: KfpClient, run_id: str) -> None:
        require_run_id(run_id)
        self._client = client
        self._late = _LATE_LOOKS
        self._canceling = False
        self._began_s = time.monotonic()
        self._waits = PodWaits(client)
        self.run_id = run_id
        self.host = client.server.host
        self.page = client.server.page(f"runs/details/{run_id}")
        self.refresh()

    outputs = None

    def refresh(self) -> None:
        """Ask the server again."""
        try:
            self.document = self._client.ask("GET", f"runs/{self.run_id}")
        except NotFound:
            raise NotFound(
                f"KFP at {self.host} has no run {self.run_id}",
                "pass the last part of the address of the run's page",
            ) from None
        self._late -= self.state in RUN_ENDED
        self._canceling = self.state == "CANCELING" or (self._canceling and self.state == "CANCELED")

    @property
    def state(self) -> str:
        """Return the state of the run, CANCELED for one that was."""
        state = run_state(self.document)
        return "CANCELED" if self._canceling and state == "FAILED" else state

    @property
    def settled(self) -> bool:
        """Return whether the run has ended, and the states of its tasks are not older than its own."""
        if self.state not in RUN_ENDED:
            return False
        states = {task.state for task in self.tasks}
        failed_unseen = run_state(self.document) == "FAILED" and bool(states - {""}) and "FAILED" not in states
        return not ("RUNNING" in states or failed_unseen) or self._late <= 0

    @property
    def tasks(self) -> list[Task]:
        """Return the container tasks of the run, each after those that it depends on."""
        return tasks_of(self.document, self.spec)

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """The PipelineSpec, which the run has itself or in a stored version; {} if in none.

        Raises:
            NotFound: the stored version was deleted.
        """
        spec, stored = self.document.get("pipeline_spec"), self.document.get("pipeline_version_reference")
        if not spec and isinstance(stored, Mapping):
            return stored_spec(self._client, str(stored.get("pipeline_id")), str(stored.get("pipeline_version_id")))
        return _without_platform(spec)

    @property
    def artifact_folder(self) -> str:
        """Return where the artifacts are, "" if the run has neither an artifact root nor its own pipeline root."""
        root = artifact_root_of(self.spec) or _mapping(self.document, "runtime_config").get("pipeline_root")
        return self.artifact_folder_below(str(root or ""))

    def artifact_folder_below(self, root: str) -> str:
        """Return where the artifacts are below a pipeline root or an artifact root, "" without one.

        The driver writes PIPELINE_ROOT/PIPELINE/RUN_ID/TASK/UUID/ARTIFACT (backend/src/v2: metadata.GetPipeline,
        driver.provisionOutputs), with a UUID for each attempt of a task; the API does not say so. Steps write the same
        below an artifact root.
        """
        pipeline = _mapping(self.spec, "pipelineInfo").get("name")
        if not root or not pipeline:
            return ""
        return f"{root.partition('?')[0].rstrip('/')}/{pipeline}/{self.run_id}"

    def read_log(self, task: Task) -> list[str]:
        """Return the lines of the log of the first of a task's pods that has one; [] if none has."""
        return without_launcher(self._first_log(task)).rstrip().splitlines()

    @property
    def may_start_ray(self) -> bool:
        """Return whether a step may start a RayJob: the parameter `workers` says it, or there is none (smoke test)."""
        parameters = _mapping(_mapping(self.document, "runtime_config"), "parameters")
        if str(parameters.get("workers", "")).startswith("rayjob"):
            return True
        try:
            return starts_ray_itself(self.spec)
        except NotFound:  # the stored version is deleted
            return True

    def remarks(self) -> list[str]:
        """Return the command for the training's curve, if the step writes it to Cloud Storage, and why pods wait.

        TensorBoard looks for event files below the folder of the step, one attempt of which has a UUID that no API
        tells.
        """
        trains = any(task.name == TRAINING and task.state for task in self.tasks)
        folder = self.artifact_folder if trains else ""
        curve = [describe_curve(f"{folder}/{TRAINING}")] if folder.startswith("gs://") else []
        return curve + self._waits.explain(self.tasks) + self._missing_controller()

    def results(self) -> list[str]:
        """Return the smoke test's table, or the verdict of the report on the release clang or of the evaluation, and
        where the artifacts are.
        """
        lines = []
        succeeded = {task.name: task for task in self.tasks if task.state == "SUCCEEDED"}
        for name, beginning in ((TABLE_STEP, TABLE_HEADING), (REPORT_STEP, "verdict"), ("evaluation", "verdict")):
            log = [_STAMP.sub("", line) for line in self.read_log(succeeded[name])] if name in succeeded else []
            if begins := [number for number, line in enumerate(log) if line.startswith(beginning)]:
                lines = [line for line in log[begins[-1] :] if not is_cost_line(line)]
                break
        if not lines and "evaluation" in succeeded and succeeded["evaluation"].reused:
            lines = ["the evaluation was reused: its run has the verdict"]
        return lines + ([f"artifacts: {self.artifact_folder}"] if self.artifact_folder else [])

    def failure(self) -> UserError:
        """Return the error of a run that failed, with the last lines of the log of the task that did."""
        problem = f"the run {self.run_id} did not succeed: "
        failed = [task for task in self.tasks if task.state == "FAILED"]
        if not failed:
            return UserError(f"{problem}{describe_state(self.state)}", f"see it at {self.page}")
        if not_run := [task.name for task in self.tasks if not task.state]:
            say(f"not run: {', '.join(not_run)}")
        log, command = "", ""
        text = self._first_log(failed[0])
        lines = [line for line in without_launcher(text).rstrip().splitlines() if not is_cost_line(line)]
        if tail := lines[-_LAST_LINES:]:
            log = f"\n  the last lines of {failed[0].name}:" + "".join(f"\n    {line}" for line in tail)
        elif failed[0].pods:
            command = f" (kubectl logs --container main {failed[0].pods[0]})"
        if lost_driver(log):
            return UserError(f"{problem}{LOST_DRIVER[0]}{log}", LOST_DRIVER[1])
        if launcher_was_killed(text):
            return UserError(
                f"{problem}the pod of step {failed[0].name} was removed while it ran (exit status 143), and Argo, "
                f"which repeats a step whose pod is gone, looked a moment before{log}",
                f"mlgo pipeline retry {self.run_id} continues the run from there",
            )
        return UserError(
            f"{problem}step {', '.join(task.name for task in failed)} failed{log}",
            f"see its log at {self.page}{command}. When the cause is removed, mlgo pipeline retry {self.run_id} "
            "continues the run from there",
        )

    def _missing_controller(self) -> list[str]:
        """Return what there is to say of a run in which nothing has begun for a while."""
        begun = _mapping(self.document, "run_details").get("task_details")
        if begun or self.state in RUN_ENDED or time.monotonic() - self._began_s < _NO_CONTROLLER_S:
            return []
        return [
            f"nothing of the run has begun for {_NO_CONTROLLER_S:.0f} s: Argo's controller does not answer "
            "(kubectl get pods -n kubeflow -l app=workflow-controller)"
        ]

    def _first_log(self, task: Task) -> str:
        return next(filter(None, map(self._read_text, task.pods)), "")

    def _read_text(self, pod: str) -> str:
        """Return the log of a step from the API server or the user interface, "" if neither has it.

        Argo's emissary and KFP's launcher, which run the step's program, write to the same log.
        """
        query = {"podname": pod, "runid": self.run_id}
        query["createdat"] = str(self.document.get("created_at") or "")[:10]  # part of the place of archived logs
        if namespace := self._client.server.namespace:
            query["podnamespace"] = namespace
        for path in (f"/apis/v1alpha1/runs/{self.run_id}/nodes/{pod}/log", f"/k8s/pod/logs?{urlencode(query)}"):
            text = self._client.get_text(path)
            # The API server answers 200 before it looks; the object of an error follows then.
            if text.strip() and not text.lstrip().startswith('{"error_message"'):
                return text
        return ""


def _mapping(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def require_run_id(run_id: str) -> None:
    """Raise UserError for a run's page instead of its ID, which becomes part of a URL; NotFound for a run's name."""
    if not _RUN.fullmatch(run_id):
        error = UserError if "/" in run_id else NotFound
        raise error(f"{run_id!r} is no ID of a run", "pass the last part of the address of the run's page")


class PodWaits:
    """Finds out why the pods of tasks do not start, of those that are pending for a while."""

    def __init__(self, client: KfpClient) -> None:
        self._client = client
        self._looks: dict[str, int] = {}

    def explain(self, tasks: Sequence[Task]) -> list[str]:
        """Return the reasons as lines of text. Call it with the tasks of each look at a run."""
        lines = []
        for task in tasks:
            self._looks[task.name] = self._looks.get(task.name, 0) + 1 if task.may_wait else 0
            if self._looks[task.name] and self._looks[task.name] % _WAITS_LOOKS == 0:
                reason = next(filter(None, (pending_reason(self._read_pod(pod)) for pod in task.pods)), "")
                if reason:
                    lines.append(f"[{task.name}] its pod has not started: {reason}")
                if "Insufficient" in reason:
                    lines.append("  cancel the run and submit it with --small, if no larger node will come")
        return lines

    def _read_pod(self, name: str) -> dict[str, Any]:
        """Return a pod through KFP's user interface, or from the kubeconfig's cluster; {} if neither has it."""
        if pod := self._client.get_pod(name):
            return pod
        from pipelines.cluster.kubernetes_checks import Cluster  # imports the client of Kubernetes

        try:
            return Cluster(self._client.server.pods_namespace).pod(name)
        except UserError:  # no kubeconfig
            return {}


def stored_spec(client: KfpClient, pipeline_id: str, version_id: str) -> Mapping[str, Any]:
    """Return the PipelineSpec of a version of a stored pipeline. NotFound if there is none."""
    return _without_platform(client.ask("GET", f"pipelines/{pipeline_id}/versions/{version_id}").get("pipeline_spec"))


def _without_platform(spec: Any) -> Mapping[str, Any]:
    """Return a PipelineSpec, which has settings for Kubernetes next to it or not; {} if it is none."""
    if isinstance(spec, Mapping):
        spec = spec.get("pipeline_spec", spec)
    return spec if isinstance(spec, Mapping) else {}


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


def launcher_was_killed(log: str) -> bool:
    """Return whether the log of a step that failed lacks what KFP's launcher says of every failure that it sees.

    SIGTERM ends the launcher at once when the pod is removed.
    """
    severities = {match["severity"] for match in _LAUNCHER_LINE.finditer(log)}
    return bool(severities) and "F" not in severities


def without_launcher(log: str) -> str:
    """Return a log without what Argo's and KFP's launchers report, dumps of a driver's inputs and a step's outputs too.

    Of their lines only the launcher's own errors are returned.

    A log of nothing else is returned as it is: it may have the exit status of a program that says nothing.
    """
    lines = []
    in_dump = False
    for line in log.splitlines(keepends=True):
        if _ARGO_LINE.match(line):
            in_dump = False
        elif match := _LAUNCHER_LINE.match(line):
            failed = match["severity"] in "EF"
            in_dump = not failed and bool(_DUMP.search(line))
            if failed and not _EXIT_STATUS.search(line):
                lines.append(line)
        elif in_dump:
            in_dump = not line.startswith("}")
        else:
            lines.append(line)
    return "".join(lines) or log
