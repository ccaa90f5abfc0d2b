"""Says why pods of a RayJob's cluster do not run: no node has room, an image cannot be pulled, a Secret is missing."""

from __future__ import annotations

import time
from typing import Any

from kubernetes.client import ApiException

from components.core.console import UserError
from components.core.rayjob.kubernetes import ApiServer

INTERVAL_S = 30.0


class PendingPods:
    """Describes the pending pods, as far as the server tells: the job continues without.

    Attributes:
        text: what was found last, "" if no pod was pending.
    """

    def __init__(self, server: ApiServer, namespace: str, interval_s: float = INTERVAL_S) -> None:
        self._server, self._namespace, self._interval_s = server, namespace, interval_s
        self._next_s = 0.0
        self.text = ""

    def news(self, cluster: str) -> str:
        """Return the description if it has changed, else ""; asks the server at most once per interval.

        Args:
            cluster: name of the RayCluster, "" if there is none yet.
        """
        if not cluster or time.monotonic() < self._next_s:
            return ""
        self._next_s = time.monotonic() + self._interval_s
        try:
            pods = self._server.call(
                self._server.pods.list_namespaced_pod,
                self._namespace,
                label_selector=f"ray.io/cluster={cluster}",
                patience_s=0,
            ).items
        except (UserError, ApiException, ValueError):
            return ""
        before, self.text = self.text, _describe(pods)
        return self.text if self.text != before else ""


def _describe(pods: list[Any]) -> str:
    pending = [pod for pod in pods if pod.status is not None and pod.status.phase == "Pending"]
    reasons = [(pod.metadata.name, reason) for pod in pending if (reason := _reason(pod.status))]
    if not reasons:
        return ""
    name, reason = reasons[0]
    return f"{len(pending)} of {len(pods)} pods are pending, {name}: {reason}"


def _reason(status: Any) -> str:
    """Return why a pod is pending; "" while it is starting as it should."""
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason or 'not scheduled'}: {condition.message or ''}".removesuffix(": ")
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting = container.state.waiting if container.state is not None else None
        if waiting is not None and waiting.reason not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting.reason}: {waiting.message or ''}".removesuffix(": ")
    return ""
