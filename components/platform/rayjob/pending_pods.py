"""Says why pods do not run: no node has room, an image cannot be pulled, a Secret is missing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from components.platform.errors import UserError

if TYPE_CHECKING:
    from components.platform.rayjob.kubernetes import ApiServer

INTERVAL_S = 30.0


class PendingPods:
    """Describes the pending pods of a RayJob's cluster, as far as the server tells: the job continues without.

    Attributes:
        text: what was found last, "" if no pod was pending.
    """

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server, self._namespace = server, namespace
        self._next_s = 0.0
        self.text = ""

    def news(self, cluster: str) -> str:
        """Return the description if it has changed, else ""; asks the server at most once per interval.

        Args:
            cluster: name of the RayCluster, "" if there is none yet.
        """
        if not cluster or time.monotonic() < self._next_s:
            return ""
        from kubernetes.client import ApiException  # takes a second, and pending_reason does not need it

        self._next_s = time.monotonic() + INTERVAL_S
        try:
            pods = self._server.call(
                self._server.pods.list_namespaced_pod,
                self._namespace,
                label_selector=f"ray.io/cluster={cluster}",
                patience_s=0,
            ).items
        except (UserError, ApiException, ValueError):
            return ""
        before, self.text = self.text, _describe(self._server.as_json(pods))
        return self.text if self.text != before else ""


def pending_reason(pod: Mapping[str, Any]) -> str:
    """Return why a pod is pending, "" if it is not, while it is starting as it should, or if that is unknown.

    Args:
        pod: an object of the Kubernetes API, as JSON; {} if it could not be read.
    """
    status = pod.get("status")
    if not isinstance(status, Mapping) or status.get("phase") != "Pending":
        return ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _text(condition) or "not scheduled"
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return _text(waiting)
    return ""


def _text(condition: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))


def _describe(pods: list[Mapping[str, Any]]) -> str:
    pending = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Pending"]
    reasons = [(pod["metadata"]["name"], reason) for pod in pending if (reason := pending_reason(pod))]
    if not reasons:
        return ""
    name, reason = reasons[0]
    return f"{len(pending)} of {len(pods)} pods are pending, {name}: {reason}"
