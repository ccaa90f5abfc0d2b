"""Runs a RayJob to its end; follows an existing one instead of starting a second one.

The name of a RayJob is derived from what it trains on (`job_name`), so a step that was killed or whose node disappeared
finds the RayJob that it had started. Only the RayJob's own failure ends it, not that of the step. The output of the
driver is read from the log of the pod that submits it.
"""

from __future__ import annotations

import math
import re
import time
from collections import deque
from datetime import datetime
from typing import Any

from kubernetes.client import ApiException, V1DeleteOptions, V1Preconditions

from components.platform.console import say
from components.platform.console.number_types import environment_number
from components.platform.errors import UserError
from components.platform.rayjob.kubernetes import ApiServer, error_of_refusal
from components.platform.rayjob.manifest import API_VERSION, rayjob
from components.platform.rayjob.pending_pods import PendingPods
from components.platform.rayjob.spec import RayJobSpec
from components.platform.rayjob.step_lease import PATIENCE_S, StepLease

TAIL = 20
_COLOR = re.compile("\x1b\\[[0-9;]*m")
"""What colors the lines of `ray job submit`."""
_TRACEBACK = re.compile(r'^Traceback .*\n  File "[^"]*/bin/ray", .*\n( .*\n)*', re.MULTILINE)
"""Where `ray job logs` was in its code when it lost the head; its last line, which follows, says that."""
_SUBMITTED = re.compile(r"Job '.*' submitted successfully")
"""What `ray job submit` prints; of a job that the head has, the submitter only follows the log."""
_SAME_LINES = 3
"""Number of lines in a row by which the log of a job is recognized: those of a training have iteration and time."""
_FIRST_LINES = 1000
"""Number of earlier lines that a step prints when it starts to follow a log."""
_CLOCK_SKEW_S = 60
"""Maximum expected difference between the clocks of nodes. Lines that are read twice are recognized."""
POLL_S = environment_number("MLGO_POLL_S", 10)
_FAILED = {"Failed", "ValidationFailed"}
_ATTEMPTS = 5
_DELETION_TIMEOUT_S = 600.0
"""The RayJob is deleted with its cluster, whose pods may take minutes."""
_REMEDY = "is KubeRay installed, 1.6.0 or newer? Is k8s/base applied?"


def run_rayjob(
    spec: RayJobSpec, server: ApiServer | None = None, poll_s: float = POLL_S, lease: StepLease | None = None
) -> None:
    """Return when the RayJob has succeeded; print its states and the output of its driver.

    A running RayJob of that name is followed, a successful one is accepted, a failed one is deleted and started again.
    Interrupted (Ctrl-C, SIGTERM), the function leaves the RayJob running.

    Args:
        lease: renewed while the RayJob is followed; the RayJob ends some time after that ends.

    Raises:
        UserError: the RayJob failed or was deleted, or the server refuses it or no longer answers.
    """
    server = server or ApiServer()
    try:
        if lease:
            lease.renew()  # first: a trainer that starts looks at it
        _attach(server, spec)
        _follow(server, spec, poll_s, lease)
    except KeyboardInterrupt:
        time_left = f" for {PATIENCE_S / 60:.0f} min" if lease else ""
        say(
            f"{_title(spec)} continues{time_left}; the same command follows it, and"
            f" kubectl delete rayjob --namespace {spec.namespace} {spec.name} ends it"
        )
        raise


def _attach(server: ApiServer, spec: RayJobSpec) -> None:
    """Ensure that the RayJob exists and has not failed."""
    for _attempt in range(_ATTEMPTS):
        try:
            # Strict: fields that this KubeRay does not know are an error instead of being dropped silently.
            create = server.rayjobs.create_namespaced_custom_object
            server.call(create, *_collection(spec), rayjob(spec), field_validation="Strict")
            say(f"{_title(spec)} is started")
            return
        except ApiException as error:
            if error.status != 409:
                raise error_of_refusal(error, _title(spec), _REMEDY) from None
        job = _get(server, spec)
        if job is None:
            continue  # deleted between the two requests, or the quota changed during the first
        if "deletionTimestamp" not in job["metadata"]:
            if not _has_failed(job):
                say(f"{_title(spec)} exists already; following it")
                return
            say(f"{_title(spec)} has failed before; starting it again")
            if not _delete(server, spec, job["metadata"]["uid"]):
                continue
        _await_deletion(server, spec, job["metadata"]["uid"])
    raise UserError(f"{_title(spec)} is repeatedly deleted and created", "find out who else runs this training")


def _follow(server: ApiServer, spec: RayJobSpec, poll_s: float, lease: StepLease | None) -> None:
    log, pods = DriverLog(server, spec.namespace, spec.name), PendingPods(server, spec.namespace)
    printed = ""
    while True:
        if lease:
            lease.renew()
        job = _get(server, spec)
        if job is None:
            raise UserError(f"{_title(spec)} was deleted", "run the same command again to start it again")
        for line in log.new_lines():
            say(line)
        status = job.get("status", {})
        deployment, job_state = status.get("jobDeploymentStatus", ""), status.get("jobStatus", "")
        state = (
            ", ".join(filter(None, [deployment, job_state and f"job {job_state}"])) or "KubeRay has not started it yet"
        )
        if state != printed:
            printed = state
            say(f"{_title(spec)}: {state}")
        if deployment == "Complete" and not _has_failed(job):
            return
        if news := pods.news(status.get("rayClusterName", "")):
            say(f"{_title(spec)}: {news}")
        if _has_failed(job):
            raise _failure(spec, status, list(log.tail), pods.text)
        time.sleep(poll_s)


def _has_failed(job: dict[str, Any]) -> bool:
    # KubeRay also calls a job "Complete" that somebody stopped.
    status = job.get("status", {})
    deployment = status.get("jobDeploymentStatus", "")
    return deployment in _FAILED or (deployment == "Complete" and status.get("jobStatus") != "SUCCEEDED")


def _failure(spec: RayJobSpec, status: dict[str, Any], tail: list[str], pending: str) -> UserError:
    reason = ": ".join(filter(None, [status.get("reason") or status.get("jobStatus", ""), status.get("message", "")]))
    output = "".join(f"\n    {line}" for line in tail)
    return UserError(
        f"{_title(spec)} failed{f' ({reason})' if reason else ''}"
        + (f"; {pending}" if pending else "")
        + (f"\n  its last lines:{output}" if output else ""),
        f"kubectl describe rayjob --namespace {spec.namespace} {spec.name}; after correcting the cause run the same"
        " command again: it starts a new RayJob, which continues from the last checkpoint",
    )


def _delete(server: ApiServer, spec: RayJobSpec, uid: str) -> bool:
    """Delete the RayJob with this UID; return False if another step has replaced it."""
    options = V1DeleteOptions(
        api_version="v1",
        kind="DeleteOptions",
        preconditions=V1Preconditions(uid=uid),
        # Dependents first: KubeRay would take the old RayJob's Job, which has the same name, for the new one's.
        propagation_policy="Foreground",
    )
    try:
        delete = server.rayjobs.delete_namespaced_custom_object
        server.call(delete, *_collection(spec), spec.name, body=options)
    except ApiException as error:
        if error.status not in (404, 409):
            raise error_of_refusal(error, f"to delete {_title(spec)}", _REMEDY) from None
        return error.status == 404
    return True


def end_rayjob(spec: RayJobSpec, server: ApiServer) -> None:
    """Delete the RayJob and its cluster, if it exists; one that replaces it meanwhile stays.

    Raises:
        UserError: the server refuses or does not answer.
    """
    if job := _get(server, spec):
        _delete(server, spec, job["metadata"]["uid"])


def _await_deletion(server: ApiServer, spec: RayJobSpec, uid: str) -> None:
    give_up_s = time.monotonic() + _DELETION_TIMEOUT_S
    while (job := _get(server, spec)) is not None and job["metadata"]["uid"] == uid:
        if time.monotonic() > give_up_s:
            raise UserError(
                f"{_title(spec)} is being deleted, but still exists after {_DELETION_TIMEOUT_S:.0f} s",
                "KubeRay's operator has to release it; check that it runs: kubectl get pods -A -l"
                " app.kubernetes.io/component=kuberay-operator",
            )
        time.sleep(1)


def _get(server: ApiServer, spec: RayJobSpec) -> dict[str, Any] | None:
    try:
        job = server.call(server.rayjobs.get_namespaced_custom_object, *_collection(spec), spec.name)
    except ApiException as error:
        if error.status == 404:
            return None
        raise error_of_refusal(error, f"to show {_title(spec)}", _REMEDY) from None
    if not isinstance(job, dict):
        raise UserError(f"the answer to a request for {_title(spec)} is not a Kubernetes object", _REMEDY)
    return job


def _collection(spec: RayJobSpec) -> tuple[str, str, str, str]:
    group, _slash, version = API_VERSION.partition("/")
    return group, version, spec.namespace, "rayjobs"


def _title(spec: RayJobSpec) -> str:
    return f"RayJob {spec.namespace}/{spec.name}"


class DriverLog:
    """Reads a log from where the last call ended.

    A log that cannot be read is not an error: the job continues without it. Requests are not repeated either, because
    while the pod's node does not answer, the API server still knows the state of the job.

    Attributes:
        tail: the last TAIL lines that were read.
    """

    def __init__(self, server: ApiServer, namespace: str, job: str) -> None:
        self._server, self._namespace, self._job = server, namespace, job
        self._pod, self._owner, self._last_stamp = "", "", ""
        self._lost_tail: list[str] = []
        self.tail: deque[str] = deque(maxlen=TAIL)

    def new_lines(self) -> list[str]:
        """Return the lines since the last call; at the first call, the last thousand."""
        try:
            return self._new_lines()
        except (UserError, ApiException, ValueError):
            return []

    def _new_lines(self) -> list[str]:
        pod, owner = self._newest_pod()
        if pod and pod != self._pod:
            self._lost_tail = list(self.tail) if owner == self._owner else []
            self._pod, self._owner, self._last_stamp = pod, owner, ""
        if not pod:
            return []
        since: dict[str, Any] = {"tail_lines": _FIRST_LINES}
        if self._last_stamp:
            since = {"since_seconds": _age_s(self._last_stamp) + _CLOCK_SKEW_S}
        # Without _preload_content=False the client would return the text of Python's bytes object.
        response = self._server.call(
            self._server.pods.read_namespaced_pod_log,
            pod,
            self._namespace,
            timestamps=True,
            _preload_content=False,
            patience_s=0,
            **since,
        )
        text = response.data.decode("utf-8", "replace")
        lines = []
        last_stamp = self._last_stamp
        for line in text.split("\n"):  # str.splitlines also splits at characters within a line
            stamp, _space, content = line.partition(" ")
            # An error of the node, which may follow a status of 200, has no time.
            if stamp > self._last_stamp and stamp[0].isdigit():
                lines.append(_COLOR.sub("", content))
                last_stamp = stamp
        self._last_stamp = last_stamp
        lines = self._without_repeated(_TRACEBACK.sub("", "\n".join(lines)).split("\n") if lines else [])
        self.tail.extend(lines)
        return lines

    def _without_repeated(self, lines: list[str]) -> list[str]:
        """Return the lines after those that the submitter of the same Job has printed before it was lost.

        The one that replaces it begins with the whole log, or, if its head was lost too, with that of a new attempt.
        Lines of Ray's client are in the log of one submitter only: what is around them is found. Of a log that comes
        in two parts, the first is printed again.
        """
        if not self._lost_tail:
            return lines
        if any(map(_SUBMITTED.search, lines)):  # a new attempt, whose first lines may be as the lost one's last ones
            self._lost_tail = []
            return lines
        count = min(_SAME_LINES, len(self._lost_tail))
        ends = {tuple(lines[end - count : end]): end for end in range(len(lines), count - 1, -1)}
        for end in range(len(self._lost_tail), count - 1, -1):
            if after := ends.get(tuple(self._lost_tail[end - count : end])):
                self._lost_tail = []
                return lines[after:]
        return lines

    def _newest_pod(self) -> tuple[str, str]:
        """Return the name and the Job's UID of the newest pod, "" if there is none."""
        # Kubernetes gives this label to the pods of a Job; KubeRay names the Job like the RayJob.
        label = f"batch.kubernetes.io/job-name={self._job}"
        pods = self._server.call(
            self._server.pods.list_namespaced_pod, self._namespace, label_selector=label, patience_s=0
        ).items
        if not pods:
            return "", ""
        newest = max(pods, key=lambda pod: (str(pod.metadata.creation_timestamp or ""), pod.metadata.name)).metadata
        return newest.name, (newest.labels or {}).get("batch.kubernetes.io/controller-uid", "")


def _age_s(stamp: str) -> int:
    """Return the age of an RFC 3339 time in whole seconds."""
    return max(0, math.ceil(time.time() - datetime.fromisoformat(stamp).timestamp()))
