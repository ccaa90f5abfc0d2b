"""A Ray cluster on this machine whose compiles sleep: what the head does is real, what the workers do is not.

Raylets, agents, object stores, the trainer's pool, what is sent and what comes back are those of a training: requests
for modules of a run's corpus, answered after as long as its base and flips take, by arrays of as many flips as
are measured. Raylets and agents run on the same processors as the head here, which a cluster's do not: figures
in processor time of the head's own processes hold elsewhere, what the clock says holds for no better than this.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from components.compiler.advisor import POLICY_FILES
from components.compiler.quarantine import Quarantine, compile_all
from components.ppo.measured import FlipRequest, FlipShare, merge
from components.ppo.rollout import end_s
from components.ppo.weights import emitted
from components.workers.ray import RayPool
from components.workers.settings import NODE_SETTINGS
from tests.bench.workload import Workload

SLOTS_PER_NODE = 64
STORE_BYTES = 1 << 30
HEAD_STORE_BYTES = 2 << 30
ROUNDS = 20
"""Items for each slot: the beginning and the end, which are left out, are a tenth of that each."""
LONGEST_S = 60.0
"""Iterations that take longer than that are left out."""


@dataclass(frozen=True)
class Measured:
    """What a head did, and how busy it kept its slots.

    Attributes:
        busy: sleep, over slots and time; between the first and the last tenth of the answers.
        modules_per_s: in that time.
        driver_ms: processor time of the trainer's process, all threads, for each module.
        head_ms: the same of the head's raylet (with its object store) and control service.
        machine: how much of this machine's processors was in use, by whatever; near 1, it is the machine that is slow.
        iteration_s: time of an iteration by its number of modules, longest first.
        ideal_s: what it would be with no head at all: the same requests on the same slots.
    """

    slots: int
    busy: float
    modules_per_s: float
    driver_ms: float
    head_ms: float
    machine: float
    iteration_s: dict[int, float]
    ideal_s: dict[int, float]


@contextmanager
def simulated(slots: int) -> Iterator[tuple[RayPool, list[int]]]:
    """A pool on a cluster with so many slots, on nodes of at most SLOTS_PER_NODE; and the head's processes."""
    os.environ.update(NODE_SETTINGS)
    from ray.cluster_utils import Cluster

    # Short: below it are sockets, whose paths may have 107 characters. A variable, for Cluster also writes its address
    # below it, and would not make /tmp/ray, which exists only where Ray ran before.
    directory = tempfile.mkdtemp(prefix="mlgo-ray-", dir="/tmp")
    before = os.environ.get("RAY_TMPDIR")
    os.environ["RAY_TMPDIR"] = directory
    cluster = Cluster()
    try:
        cluster.add_node(num_cpus=0, include_dashboard=False, object_store_memory=HEAD_STORE_BYTES)
        nodes = -(-slots // SLOTS_PER_NODE)
        for node in range(nodes):
            cpus = slots // nodes + (node < slots % nodes)
            cluster.add_node(wait=False, num_cpus=cpus, object_store_memory=STORE_BYTES, include_dashboard=False)
        cluster.wait_for_nodes()
        head = [
            info.process.pid
            for kind in ("raylet", "gcs_server")
            for info in cluster.head_node.all_processes.get(kind, ())
        ]
        with RayPool(cluster.address) as pool:
            while pool.size < slots:
                list(pool.map_unordered(abs, range(2 * slots)))
                time.sleep(0.1)
            yield pool, head
    finally:
        cluster.shutdown()
        os.environ.pop("RAY_TMPDIR") if before is None else os.environ.update(RAY_TMPDIR=before)
        shutil.rmtree(directory, ignore_errors=True)


def measure_slots(workload: Workload, slots: int, iterations: Sequence[int] = (), repeats: int = 3) -> Measured:
    """What `slots` slots need of a head. iterations: numbers of modules; those that take long are left out, the others
    are told as the median of `repeats`."""
    with simulated(slots) as (pool, head), emitted(workload.dense, workload.clang) as policy:
        pool.share(policy, POLICY_FILES)
        list(pool.map_unordered(workload.asleep, workload.requests(workload.names(2 * slots), policy)))
        steady = _steady(pool, workload, workload.requests(workload.names(ROUNDS * slots, 1), policy), head)
        iteration_s, ideal_s = {}, {}
        for count in iterations:
            batches = [workload.iteration(count, seed, policy, slots) for seed in range(repeats)]
            ideals_s = [end_s(map(workload.asleep.seconds, batch), slots) for batch in batches]
            if max(ideals_s) <= LONGEST_S:
                iteration_s[count] = statistics.median(_iteration_s(pool, workload, batch) for batch in batches)
                ideal_s[count] = statistics.median(ideals_s)
        return Measured(slots, *steady, iteration_s, ideal_s)


def _steady(
    pool: RayPool, workload: Workload, requests: Sequence[FlipRequest], head: Sequence[int]
) -> tuple[float, float, float, float, float]:
    slots, count = pool.size, len(requests)
    begin, end = count // 10, count - count // 10
    slept: list[tuple[float, float]] = []
    for done, (i, outcome) in enumerate(pool.map_unordered(workload.asleep, requests)):
        assert isinstance(outcome, FlipShare), outcome
        merge([outcome])  # as the trainer does
        slept.append((time.perf_counter(), workload.asleep.seconds(requests[i])))
        if done == begin:
            before = clocks(head)
        elif done == end:
            after = clocks(head)
    wall_s, driver_s, head_s, machine_s = (now - then for now, then in zip(after, before, strict=True))
    # Long requests overlap the time that is looked at on both sides.
    inside_s = sum(max(0.0, min(ended_s, after[0]) - max(ended_s - seconds, before[0])) for ended_s, seconds in slept)
    modules = end - begin
    return (
        inside_s / (slots * wall_s), modules / wall_s, 1e3 * driver_s / modules, 1e3 * head_s / modules,
        machine_s / (wall_s * (os.cpu_count() or 1)),
    )  # fmt: skip


def _iteration_s(pool: RayPool, workload: Workload, requests: Sequence[FlipRequest]) -> float:
    began_s = time.perf_counter()
    done = sum(1 for _ in compile_all(pool, workload.asleep, requests, Quarantine(0.0, len(requests))))
    assert done == len(requests)
    return time.perf_counter() - began_s


def clocks(head: Sequence[int]) -> tuple[float, float, float, float]:
    """Seconds: the clock, processor time of this process, of the processes `head`, and of all there are."""
    ticks = sum(sum(map(int, _fields(f"/proc/{pid}/stat")[11:13])) for pid in head)
    user, nice, system, _idle, _waiting, interrupts, soft = map(int, _fields("/proc/stat")[1:8])
    everything = user + nice + system + interrupts + soft
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), time.process_time(), ticks * tick_s, everything * tick_s


def _fields(path: str) -> list[str]:
    """Of the first line, after the name in parentheses if there is one."""
    return Path(path).read_text().partition("\n")[0].rpartition(")")[2].split()
