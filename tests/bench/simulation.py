"""A simulated Ray cluster on this machine whose compiles sleep: the head's work is real, the workers' is not.

Raylets, workers, object stores, the trainer's pool, requests and answers are those of a training: requests for modules
of a run's corpus, answered after the time of their base and flip compiles, with arrays of as many flips as are
measured. Raylets and workers share the head's processors here, unlike in a real cluster: CPU times of the head's own
processes are valid elsewhere, wall times include the effects of that sharing.
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

from components.core.compiler.advisor import POLICY_FILES
from components.core.compiler.quarantine import Quarantine, compile_all
from components.platform.workers.ray_pool import RayPool
from components.platform.workers.settings import NODE_SETTINGS
from components.ppo.credit.measured_flips import FlipJob, FlipResult, merge
from components.ppo.policy_weights import compiled_policy
from components.ppo.rollout import estimate_makespan_s
from tests.bench.context import BenchContext
from tests.bench.workload import Workload

SLOTS_PER_NODE = 64
STORE_BYTES = 1 << 30
HEAD_STORE_BYTES = 2 << 30
LONGEST_S = 60.0
"""Iterations that take longer than this are skipped."""


@dataclass(frozen=True)
class Measured:
    """Work of a head, and utilization of its slots.

    Attributes:
        busy: time slept, divided by slots and time, between the first and the last tenth of the answers.
        modules_per_s: modules per second in that time.
        driver_ms: CPU time of the trainer's process, all threads, per module.
        head_ms: the same for the head's raylet (with its object store) and control service.
        machine: utilization of this machine's processors, by anything; near 1, the machine is the limit.
        iteration_s: time of an iteration by its number of modules, longest first.
        ideal_s: the same without any overhead of the head: the same requests on the same slots.
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
    """Yield a pool on a cluster with `slots` slots, on nodes of at most SLOTS_PER_NODE, and the head's process IDs."""
    os.environ.update(NODE_SETTINGS)
    from ray.cluster_utils import Cluster

    # A short path, because it contains sockets, whose paths are limited to 107 characters. Set by a variable, because
    # Cluster also writes its address there, and does not create /tmp/ray, which exists only if Ray ran before.
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


def measure_slots(
    workload: Workload,
    slots: int,
    iterations: Sequence[int] = (),
    repeats: int = 3,
    requests_per_slot: int = BenchContext.requests_per_slot,
) -> Measured:
    """Measure the work of a head for `slots` slots.

    Args:
        iterations: numbers of modules of iterations to time, except those that take longer than LONGEST_S.
        repeats: number of timings to take the median of.
        requests_per_slot: number of requests; the first and the last tenth are not measured.
    """
    with simulated(slots) as (pool, head), compiled_policy(workload.dense, workload.clang) as policy:
        pool.share(policy, POLICY_FILES)
        list(pool.map_unordered(workload.sleeping, workload.requests(workload.names(2 * slots), policy)))
        steady = _steady(pool, workload, workload.requests(workload.names(requests_per_slot * slots, 1), policy), head)
        iteration_s, ideal_s = {}, {}
        for count in iterations:
            batches = [workload.iteration(count, seed, policy, slots) for seed in range(repeats)]
            ideals_s = [estimate_makespan_s(map(workload.sleeping.seconds, batch), slots) for batch in batches]
            if max(ideals_s) <= LONGEST_S:
                iteration_s[count] = statistics.median(_iteration_s(pool, workload, batch) for batch in batches)
                ideal_s[count] = statistics.median(ideals_s)
        return Measured(slots, *steady, iteration_s, ideal_s)


def _steady(
    pool: RayPool, workload: Workload, requests: Sequence[FlipJob], head: Sequence[int]
) -> tuple[float, float, float, float, float]:
    slots, count = pool.size, len(requests)
    begin, end = count // 10, count - count // 10
    slept: list[tuple[float, float]] = []
    for done, (i, outcome) in enumerate(pool.map_unordered(workload.sleeping, requests)):
        assert isinstance(outcome, FlipResult), outcome
        merge([outcome])  # as the trainer does
        slept.append((time.perf_counter(), workload.sleeping.seconds(requests[i])))
        if done == begin:
            before = clocks(head)
        elif done == end:
            after = clocks(head)
    wall_s, driver_s, head_s, machine_s = (now - then for now, then in zip(after, before, strict=True))
    # Long requests may extend beyond the measured time on both sides.
    inside_s = sum(max(0.0, min(ended_s, after[0]) - max(ended_s - seconds, before[0])) for ended_s, seconds in slept)
    modules = end - begin
    return (
        inside_s / (slots * wall_s),
        modules / wall_s,
        1e3 * driver_s / modules,
        1e3 * head_s / modules,
        machine_s / (wall_s * (os.cpu_count() or 1)),
    )


def _iteration_s(pool: RayPool, workload: Workload, requests: Sequence[FlipJob]) -> float:
    began_s = time.perf_counter()
    done = sum(1 for _ in compile_all(pool, workload.sleeping, requests, Quarantine(0.0, len(requests))))
    assert done == len(requests)
    return time.perf_counter() - began_s


def clocks(head: Sequence[int]) -> tuple[float, float, float, float]:
    """Return, in seconds, the clock and the CPU time of this process, of the processes `head`, and of all processes."""
    ticks = sum(sum(map(int, _fields(f"/proc/{pid}/stat")[11:13])) for pid in head)
    user, nice, system, _idle, _waiting, interrupts, soft = map(int, _fields("/proc/stat")[1:8])
    everything = user + nice + system + interrupts + soft
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), time.process_time(), ticks * tick_s, everything * tick_s


def _fields(path: str) -> list[str]:
    """Return the fields of the first line, after the name in parentheses if there is one."""
    return Path(path).read_text().partition("\n")[0].rpartition(")")[2].split()
