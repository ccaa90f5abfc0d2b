"""The pool's interface to Ray. Only this file, autoscaler.py and ray_worker.py import Ray, and only when it is used."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from components.platform.console.interrupts import TERMINATING
from components.platform.errors import UserError
from components.platform.processes import supervision
from components.platform.processes.cgroup import available_processors
from components.platform.processes.python_module import ROOT
from components.platform.processes.reaper import REAPER
from components.platform.workers.autoscaler import CpuRequest
from components.platform.workers.settings import NODE_SETTINGS

NAMESPACE = "mlgo"
STORE_BYTES = 512 << 20
"""Object store of a Ray that is started on this machine: results in flight, and a policy or two."""

_MAX_EXCHANGES = 4
"""Concurrent calls of an actor: the pool makes two, and those of a cancelled iteration may still be running."""


class Cluster:
    """A connection to Ray.

    Args:
        local: Ray was started by this process and ends with the connection.
    """

    def __init__(self, ray: Any, local: bool) -> None:
        self._ray = ray
        self._local = local
        self._request = None if local else CpuRequest(ray)

    def nodes(self) -> dict[str, int]:
        """Return the living nodes with their number of processors, without nodes that have none (the head)."""
        cpus_of_node = {
            node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"]
        }
        return {node: cpus for node, cpus in cpus_of_node.items() if cpus}

    def start_worker(self, node: str, slots: int) -> Any:
        """Return the handle of a RayWorker that gets `slots` processors of this node as soon as they are free."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from components.platform.workers.ray_worker import RayWorker

        actor = self._ray.remote(concurrency_groups={"control": 4})(RayWorker)
        return actor.options(
            num_cpus=slots,
            max_concurrency=_MAX_EXCHANGES,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(slots)

    def put(self, value: Any) -> Any:
        """Put `value` into the object store and return the reference."""
        return self._ray.put(value)

    def kill(self, handle: Any) -> None:
        """Kill an actor, if it is alive."""
        self._ray.kill(handle)

    def wait(self, references: Sequence[Any], timeout_s: float) -> None:
        """Wait until all are done or have failed."""
        self._ray.wait(list(references), num_returns=len(references), timeout=timeout_s)

    def request_cpus(self, cpus: int) -> None:
        """Tell the cluster's autoscaler, if it has one, the number of processors that there is work for; 0 at the end.

        The request never shrinks in between. Call `update_request` about once a second after it.
        """
        if self._request is not None:
            self._request.want(cpus)

    def update_request(self) -> None:
        """Request as many processors as the autoscaler can start, if it cannot start all that there is work for."""
        if self._request is not None:
            self._request.update()

    def description(self) -> str:
        """Return the resources of the cluster, for messages."""
        has, free = self._ray.cluster_resources(), self._ray.available_resources()
        text = f"the Ray cluster has {has.get('CPU', 0):g} processors, {free.get('CPU', 0):g} of them free"
        starting = self._request.description() if self._request is not None else ""
        return f"{text}; {starting}" if starting else text

    def close(self) -> None:
        """End the connection, and Ray if this process started it."""
        self._ray.shutdown()


def may_be_due_to_items(error: BaseException) -> bool:
    """Return whether what a worker processed may be the reason that a call of it failed with `error`.

    It is not if the worker cannot be reached, or its node was preempted. Ray does not know of every preemption: what
    the caller decides with this, it decides again when the node has left.
    """
    from ray.exceptions import ActorUnavailableError, RayActorError

    return not isinstance(error, ActorUnavailableError) and not (isinstance(error, RayActorError) and error.preempted)


class _WorkerPath(list[str]):
    """What Ray's worker processes have first in sys.path: this project's code, at the same path on every node.

    Ray appends the working directory, which would come before it, and may have a folder with the name of our packages.
    """

    def extend(self, _paths: object) -> None:
        pass


def connect(address: str, slots: int | None) -> Cluster:
    """Connect to Ray, see RayPool for the arguments.

    Raises:
        UserError: Ray is not installed, does not answer, or uses another version or token.
    """
    for name, value in NODE_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise UserError("--workers ray: Ray is not installed in this environment", "mlgo setup ray") from None
    if ray.is_initialized():
        raise UserError("this process is already connected to Ray")
    common = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    common["job_config"] = ray.job_config.JobConfig(_py_driver_sys_path=_WorkerPath([str(ROOT)]))
    cpus = slots or available_processors()
    with _keep_signal_handlers():
        if not address:
            # A private session; its files are removed with this process, however it ends.
            directory = REAPER.scratch() / "ray"
            ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=STORE_BYTES,
                _temp_dir=str(directory),
                **common,
            )
            return Cluster(ray, True)
        try:
            ray.init(address=address, **common)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError, ray.exceptions.RayError) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            problem = f"the Ray cluster at {address} cannot be used: {lines[0][:300]}"
            raise UserError(problem, _remedy(str(error))) from None
    return Cluster(ray, False)


def _remedy(message: str) -> str:
    if re.search(r"token|auth", message, re.IGNORECASE):
        return "give the cluster's token: RAY_AUTH_TOKEN_PATH=FILE, and RAY_AUTH_MODE=token"
    if re.search(r"version", message, re.IGNORECASE):
        return f"the cluster must run the same Ray and Python ({sys.version.split()[0]}) as this environment"
    return "check the address (HOST:PORT of the head's GCS, 6379 by default) and that this machine is one of its nodes"


@contextmanager
def _keep_signal_handlers() -> Iterator[None]:
    """Restore the signal handlers of the step, which Ray replaces."""
    try:
        handlers = {number: signal.getsignal(number) for number in (*TERMINATING, signal.SIGINT)}
        yield
        for number, handler in handlers.items():
            signal.signal(number, handler)
        supervision.restore_sigchld()
    except ValueError as error:
        if "main thread" not in str(error):
            raise
