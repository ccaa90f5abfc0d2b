"""What the pool asks of Ray. The only file beside agent.py that imports it, when it is asked for."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from components.core.console import UserError
from components.core.processes import supervision
from components.core.processes.reaper import REAPER
from components.core.workers.settings import NODE_SETTINGS

NAMESPACE = "mlgo"
STORE_BYTES = 512 << 20
"""Of the object store of a Ray that is started here: results on their way, a policy or two."""

_EXCHANGES = 4
"""At the same time: the pool has two at an agent, and those of an iteration that was given up may still be there."""


class Cluster:
    """A connection to Ray. local: it was started here, and ends with the connection."""

    def __init__(self, ray: Any, local: bool, address: str) -> None:
        self._ray = ray
        self._local = local
        self._address = address
        self._wanted = 0

    def nodes(self) -> dict[str, int]:
        """Living nodes with their processors; those without, such as a head that compiles nothing, are left out."""
        found = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"]}
        return {node: cpus for node, cpus in found.items() if cpus}

    def start_agent(self, node: str, slots: int) -> Any:
        """An agent that takes `slots` processors of this node, as soon as they are free."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from components.core.workers.ray_worker import RayWorker

        actor = self._ray.remote(concurrency_groups={"control": 4})(RayWorker)
        return actor.options(
            num_cpus=slots,
            max_concurrency=_EXCHANGES,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(slots)

    def put(self, thing: Any) -> Any:
        """A reference to `thing` in the object store."""
        return self._ray.put(thing)

    def kill(self, handle: Any) -> None:
        """Ends an agent, if it lives."""
        self._ray.kill(handle)

    def wait(self, references: Sequence[Any], timeout_s: float) -> None:
        """Until all are done or have failed."""
        self._ray.wait(list(references), num_returns=len(references), timeout=timeout_s)

    def request_cpus(self, cpus: int) -> None:
        """Tells the cluster's autoscaler, if it has one, how many processors there is work for; 0: none any more.

        It only grows: between iterations there is little to do, and nodes should not go for that.
        """
        if self._local or 0 < cpus <= self._wanted or cpus == self._wanted:
            return
        from ray.autoscaler.sdk import request_resources

        self._wanted = cpus
        request_resources(num_cpus=cpus)

    def described(self) -> str:
        """What the cluster has, for messages."""
        has, free = self._ray.cluster_resources(), self._ray.available_resources()
        return f"the Ray cluster has {has.get('CPU', 0):g} processors, {free.get('CPU', 0):g} of them free"

    def close(self) -> None:
        """Ends the connection, and Ray if it was started here."""
        self._ray.shutdown()


def connect(address: str, slots: int | None) -> Cluster:
    """See RayPool. UserError: Ray is not installed, does not answer, or another version or token is used there."""
    for name, value in NODE_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise UserError("--workers ray: Ray is not installed in this environment", "make setup-ray") from None
    if ray.is_initialized():
        raise UserError("this process has a connection to Ray already")
    common = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    cpus = slots or len(os.sched_getaffinity(0))
    with _signals_kept():
        if not address:
            # A session that nobody else joins; its files go with this process, however it ends.
            directory = REAPER.scratch() / "ray"
            ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=STORE_BYTES,
                _temp_dir=str(directory),
                **common,
            )
            return Cluster(ray, True, "")
        try:
            ray.init(address=address, **common)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError, ray.exceptions.RayError) as error:
            raise UserError(
                f"the Ray cluster at {address} cannot be used: {_first_line(error)}", _remedy(str(error))
            ) from None
    return Cluster(ray, False, address)


def _remedy(said: str) -> str:
    if re.search(r"token|auth", said, re.IGNORECASE):
        return "give the cluster's token: RAY_AUTH_TOKEN_PATH=FILE, and RAY_AUTH_MODE=token"
    if re.search(r"version", said, re.IGNORECASE):
        return f"the cluster must run the same Ray and Python ({sys.version.split()[0]}) as this environment"
    return "check the address (HOST:PORT of the head's GCS, 6379 by default) and that this machine is a node of it"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:300]


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray puts handlers of its own in place of the step's."""
    try:
        kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        yield
        for number, handler in kept.items():
            signal.signal(number, handler)
        supervision.restore_sigchld()
    except ValueError as error:
        if "main thread" not in str(error):
            raise
