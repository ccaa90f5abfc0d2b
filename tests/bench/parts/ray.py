"""Overhead of Ray: per module on the head of a large cluster, and per iteration on one machine."""

from __future__ import annotations

import copy
import dataclasses
import statistics
import time

from components.platform.workers import WorkerPool
from components.platform.workers.ray_pool import RayPool
from components.ppo.train import Trainer
from tests.bench.context import BenchContext
from tests.bench.simulation import measure_slots
from tests.bench.training import WORKERS, timed_config, training
from tests.bench.workload import read_workload

WARM_UP = 2
"""Untimed first iterations with each pool, see ppo.py; Ray's workers also start in them."""


def measure(ctx: BenchContext) -> dict[str, float]:
    """ray_overhead_ms_per_module: CPU time of all processes of the head (the trainer with all its threads, the raylet
    with its object store, the control service) per module that is sent, answered, unpacked and merged, while ctx.slots
    slots of a simulated cluster are kept busy.
    ray_slots_busy_512: how busy they are, see simulation.Measured.
    ray_simulation_machine_busy: utilization of this machine meanwhile, by the head, the simulated nodes and anything
    else; near 1, ray_slots_busy_512 says more about this machine than about the head.

    ray_over_local_iteration: wall time of an iteration (code generation, measuring flips, update, checkpoint) with Ray
    over that with the local pool, WORKERS workers each, from the same state on the same modules, in turns; median.
    """
    over_local = _over_local(ctx)  # first: the simulation's Ray has other settings
    (ctx.scratch / "answers").mkdir()
    done = measure_slots(
        read_workload(ctx.run, ctx.scratch / "answers", ctx.samples), ctx.slots, requests_per_slot=ctx.requests_per_slot
    )
    return {
        "ray_overhead_ms_per_module": done.driver_ms + done.head_ms,
        "ray_slots_busy_512": done.busy,
        "ray_simulation_machine_busy": done.machine,
        "ray_over_local_iteration": over_local,
    }


def _over_local(ctx: BenchContext) -> float:
    config = timed_config(ctx, WARM_UP)
    ratios = []
    with training(config) as trainer, RayPool(slots=WORKERS) as ray:
        pools: list[WorkerPool] = [trainer.pool, ray]
        for iteration in range(WARM_UP + ctx.repeats):
            began = _Point(trainer)
            seconds, rewards = {}, set()
            for pool in pools[:: 1 if iteration % 2 else -1]:
                began.restore()
                trainer.collector = dataclasses.replace(trainer.collector, pool=pool)
                started_s = time.perf_counter()
                trainer.iterate(started_s)
                trainer.save()
                seconds[pool] = time.perf_counter() - started_s
                rewards.add((trainer.state.rewards[-1], trainer.state.scale))
            if len(rewards) != 1:
                raise AssertionError(f"the pools do not compile alike: mean rewards and sizes of worths {rewards}")
            if iteration >= WARM_UP:
                ratios.append(seconds[ray] / seconds[trainer.pool])
    return statistics.median(ratios)


class _Point:
    """Saved state of a training, to resume from more than once."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, learner = trainer, trainer.learner
        self._variables, self._shuffle = learner.state(), copy.deepcopy(learner.shuffle_state)
        self._sampler, self._state = copy.deepcopy(trainer.sampler.state()), copy.deepcopy(trainer.state)
        self._candidate, self._segments, self._best = learner.candidate, learner.segments, trainer.best

    def restore(self) -> None:
        trainer = self._trainer
        trainer.learner.restore(self._variables)
        trainer.learner.shuffle_state = self._shuffle
        trainer.learner.resume(self._candidate, self._segments)
        trainer.sampler.restore(self._sampler)
        trainer.state = copy.deepcopy(self._state)
        trainer.best = self._best
