"""Runs a RayJob to its end, and follows the one that is there already instead of starting a second one.

A RayJob's name is made of what it trains on (`job_name`), so a step that was killed, or whose node vanished, finds the
RayJob again that it had started. Nothing that happens to the step ends the RayJob, only what happens to the RayJob.
"""

from __future__ import annotations

import time
from typing import Any

from components.core.console import UserError, say
from components.core.console.number_types import environment_number
from components.core.rayjob.driver_log import DriverLog
from components.core.rayjob.kubernetes import ApiServer, reason, refused
from components.core.rayjob.manifest import API_VERSION, rayjob
from components.core.rayjob.spec import RayJobSpec

POLL_S = environment_number("MLGO_POLL_S", 10)
_FAILED = {"Failed", "ValidationFailed"}
_ATTEMPTS = 5
_GONE_S = 600.0  # to delete a RayJob with its cluster, whose pods may take their time
_REMEDY = "is KubeRay installed, and does it know Ray's token authentication (1.5.1 or newer)? Is k8s/base applied?"


def run_rayjob(spec: RayJobSpec, server: ApiServer | None = None, poll_s: float = POLL_S) -> None:
    """Returns when the RayJob has succeeded; tells its states, and what its driver prints, as they come.

    One of that name that runs is followed, one that has succeeded is taken as it is, one that has failed is deleted and
    started anew. Interrupted (Ctrl-C, SIGTERM), it leaves the RayJob running.

    Raises:
        UserError: it failed, was deleted, the server refuses it, or does not answer any more.
    """
    server = server or ApiServer()
    try:
        _attach(server, spec)
        _follow(server, spec, poll_s)
    except KeyboardInterrupt:
        say(
            f"{_called(spec)} goes on; the same command follows it, and"
            f" kubectl delete rayjob --namespace {spec.namespace} {spec.name} ends it"
        )
        raise


def _attach(server: ApiServer, spec: RayJobSpec) -> None:
    """Makes sure that the RayJob is there, and is none that failed before."""
    for _attempt in range(_ATTEMPTS):
        # Strict: a field that this KubeRay does not know is an error then, and not dropped in silence.
        answer = server.ask("POST", _collection(spec), rayjob(spec), {"fieldValidation": "Strict"})
        if answer.status_code == 201:
            say(f"{_called(spec)} is started")
            return
        if answer.status_code != 409 or reason(answer) != "AlreadyExists":
            raise refused(answer, _called(spec), _REMEDY)
        found = _get(server, spec)
        if found is None:
            continue  # deleted between the two requests
        if "deletionTimestamp" not in found["metadata"]:
            if not _has_failed(found):
                say(f"{_called(spec)} is there already, and is followed")
                return
            say(f"{_called(spec)} has failed before, and is started anew")
            if not _delete(server, spec, found["metadata"]):
                continue
        _await_end(server, spec, found["metadata"]["uid"])
    raise UserError(f"{_called(spec)} is deleted and made again all the time", "find out who else runs this training")


def _follow(server: ApiServer, spec: RayJobSpec, poll_s: float) -> None:
    log = DriverLog(server, spec.namespace, spec.name)
    told = ""
    while True:
        found = _get(server, spec)
        if found is None:
            raise UserError(f"{_called(spec)} was deleted", "run the same command again to start it anew")
        for line in log.news():
            say(line)
        status = found.get("status", {})
        deployment, job = status.get("jobDeploymentStatus", ""), status.get("jobStatus", "")
        state = ", ".join(filter(None, [deployment, job and f"job {job}"])) or "not seen by KubeRay yet"
        if state != told:
            told = state
            say(f"{_called(spec)}: {state}")
        if _has_failed(found):
            raise _failure(spec, status, list(log.tail))
        if deployment == "Complete":
            return
        time.sleep(poll_s)


def _has_failed(found: dict[str, Any]) -> bool:
    """A job that somebody stopped is "Complete" to KubeRay."""
    status = found.get("status", {})
    deployment = status.get("jobDeploymentStatus", "")
    return deployment in _FAILED or (deployment == "Complete" and status.get("jobStatus") != "SUCCEEDED")


def _failure(spec: RayJobSpec, status: dict[str, Any], tail: list[str]) -> UserError:
    why = ": ".join(filter(None, [status.get("reason") or status.get("jobStatus", ""), status.get("message", "")]))
    said = "".join(f"\n    {line}" for line in tail)
    return UserError(
        f"{_called(spec)} failed{f' ({why})' if why else ''}" + (f"\n  its last lines:{said}" if said else ""),
        f"kubectl describe rayjob --namespace {spec.namespace} {spec.name}; when that is mended, run the same command"
        " again: it starts a new one, which goes on from the last checkpoint",
    )


def _delete(server: ApiServer, spec: RayJobSpec, metadata: dict[str, Any]) -> bool:
    """Whether it is deleted, or will be. False: it is not any more what it was, look again."""
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        # Another step may have replaced it by now.
        "preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        # With all that it owns first: KubeRay would take the Job of the old one, of the same name, for the new one's.
        "propagationPolicy": "Foreground",
    }
    answer = server.ask("DELETE", f"{_collection(spec)}/{spec.name}", options)
    if answer.status_code not in (200, 202, 404, 409):
        raise refused(answer, f"to delete {_called(spec)}", _REMEDY)
    return answer.status_code != 409


def _await_end(server: ApiServer, spec: RayJobSpec, uid: str) -> None:
    give_up_s = time.monotonic() + _GONE_S
    while (found := _get(server, spec)) is not None and found["metadata"]["uid"] == uid:
        if time.monotonic() > give_up_s:
            raise UserError(
                f"{_called(spec)} is being deleted, but has not gone within {_GONE_S:.0f} s",
                "KubeRay's operator has to let go of it: does it run? kubectl get pods -A -l"
                " app.kubernetes.io/component=kuberay-operator",
            )
        time.sleep(1)


def _get(server: ApiServer, spec: RayJobSpec) -> dict[str, Any] | None:
    answer = server.ask("GET", f"{_collection(spec)}/{spec.name}")
    if answer.status_code == 404:
        return None
    if answer.status_code != 200:
        raise refused(answer, f"to show {_called(spec)}", _REMEDY)
    found: dict[str, Any] = answer.json()
    return found


def _collection(spec: RayJobSpec) -> str:
    return f"/apis/{API_VERSION}/namespaces/{spec.namespace}/rayjobs"


def _called(spec: RayJobSpec) -> str:
    return f"RayJob {spec.namespace}/{spec.name}"
