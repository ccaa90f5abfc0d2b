"""Requests processors from Ray's autoscaler, at most as many as the cluster can have.

Ray's autoscaler v2, which KubeRay runs, starts nothing for a request that the cluster's maximum cannot meet in whole
(_enforce_resource_constraints in ray/autoscaler/v2/scheduler.py), and the maximum cannot be read. But the state that
the autoscaler publishes after each update, every five seconds, names requests that it cannot meet. So a smaller number
is requested until it can be met, and then the largest one that can. The former autoscaler starts what it may and
publishes no such state.
"""

from __future__ import annotations

from typing import Any

_RPC_TIMEOUT_S = 5.0
_DIVISOR = 4
"""An unmet request is divided by this until one is met, so that the first workers start soon."""


class CpuRequest:
    """The request of one training; the newest request of any program replaces all others of the cluster.

    Args:
        ray: the module, connected to a cluster.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._client: Any = None
        self._wanted = self._sent = 0
        self._met, self._unmet = 0, 0  # the largest request that can be met, the smallest that cannot; 0: unknown
        self._version: int | None = None  # of the cluster's state when the present request was sent; None: answered

    def want(self, cpus: int) -> None:
        """Request up to `cpus` processors; 0 at the end.

        The request never shrinks in between: nodes must not be removed for the pauses between iterations.
        """
        if cpus == 0:
            if self._sent:
                self._send(0)
            self._wanted, self._version = 0, None
        elif cpus > self._wanted:
            self._wanted = cpus
            if self._version is None or not self._unmet:
                self._send_next()

    def update(self) -> None:
        """Read the autoscaler's answer, and request another number if it cannot meet the present one."""
        if self._version is None:
            return
        status = self._status()
        if status is None or status.autoscaling_state.last_seen_cluster_resource_state_version <= self._version:
            return
        self._version = None
        unmet = status.autoscaling_state.infeasible_cluster_resource_constraints
        if self._sent in [sum(one.count for one in constraint.resource_requests) for constraint in unmet]:
            self._unmet = self._sent
        else:
            self._met = max(self._met, self._sent)
        self._send_next()

    def description(self) -> str:
        """Return what the autoscaler says about nodes that are not there yet, for messages; "" if nothing."""
        status = self._status()
        if status is None:
            return ""
        state = status.autoscaling_state
        parts = []
        if self._unmet == 1:
            parts.append("the autoscaler may start no processor, see the maximum of the cluster's worker groups")
        elif state.autoscaler_state_version:
            parts.append(f"{self._sent} requested from the autoscaler")
        waiting = sum(request.count for request in state.pending_instance_requests) + len(state.pending_instances)
        parts += [f"{waiting} nodes are starting"] if waiting else []
        parts += [node.details for node in state.pending_instances[:1] if node.details]
        parts += [f"a node could not be started: {failed.reason}" for failed in state.failed_instance_requests[-1:]]
        return "; ".join(parts)

    def _send_next(self) -> None:
        if not self._unmet or self._wanted < self._unmet:
            cpus = self._wanted
        elif self._met == 0:
            cpus = self._unmet // _DIVISOR or self._unmet - 1
        else:
            cpus = (self._met + self._unmet) // 2  # self._met once they are neighbours
        if cpus not in (0, self._sent):
            self._send(cpus)

    def _send(self, cpus: int) -> None:
        from ray.autoscaler.sdk import request_resources

        self._sent = cpus
        request_resources(num_cpus=cpus)
        status = self._status()
        self._version = status.cluster_resource_state.cluster_resource_state_version if status is not None else None

    def _status(self) -> Any:
        """Return the GetClusterStatusReply of the cluster's head, None if it does not answer."""
        from ray._raylet import GcsClient  # type: ignore[attr-defined]  # of an extension module
        from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

        try:
            if self._client is None:  # a connection, for a question each second
                self._client = GcsClient(address=self._ray.get_runtime_context().gcs_address)
            return GetClusterStatusReply.FromString(self._client.get_cluster_status(timeout_s=_RPC_TIMEOUT_S))
        except (self._ray.exceptions.RayError, RuntimeError, OSError):
            return None
