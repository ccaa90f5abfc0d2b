"""Utilization of a large cluster's slots by one training, including all work of its head between the compiles."""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
import time

from components.core.formats.corpus import Module
from components.platform.console import say
from components.ppo.config import TrainingConfig
from components.ppo.module_sampler import ModuleSampler
from components.ppo.train import Trainer
from tests.bench.context import BenchContext
from tests.bench.simulation import clocks, simulated
from tests.bench.sleeping_compile import COPY, SleepingPool, original
from tests.bench.training import training
from tests.bench.workload import Workload, read_workload

WARM_UP = 1
"""Untimed first iterations: in the first, the slots import their modules, and validation precedes the compiles."""


def measure(ctx: BenchContext) -> dict[str, float]:
    """ray_training_busy_512: fraction of time that ctx.slots slots of a simulated cluster (simulation.py) sleep instead
    of compiling, over the iterations of a training from one validation to the next. An iteration generates code,
    measures flips, adds them to the training data and writes a checkpoint; the last one also includes the fit, which
    begins with it, and the validation after it. It is the training's first fit, so TensorFlow traces its functions in
    it. Everything but the compiles is real; the corpus has the run's modules, repeated under other names as often as
    needed.

    ray_training_useful_512: the same without base compiles that further parts of a divided module repeat.
    ray_training_machine_busy: utilization of this machine, which runs both head and nodes: near 1, the machine is the
    limit. Otherwise the limit is what slots wait for between the compiles of two iterations: the last compile to end,
    the rest of a fit (the phase "update"), the validation, which has fewer compiles than slots, and the compile of the
    policy itself.
    """
    config = TrainingConfig(
        ctx.corpus,
        ctx.training,
        ctx.trace,
        ctx.warmstart,
        ctx.scratch / "root",
        ctx.scratch / "policy",
        iterations=10**6,
        modules=ctx.modules_per_slot * ctx.slots,
        samples=ctx.samples,
        workers="local:1",
    )
    samples_directory = ctx.scratch / "answers"
    samples_directory.mkdir()
    workload = read_workload(ctx.run, samples_directory, ctx.samples)
    with training(config) as trainer, simulated(ctx.slots) as (cluster, head):
        pool = SleepingPool(cluster, workload.sleeping)
        _simulate(trainer, workload, pool)
        laps = _laps_of(trainer)
        for _ in range(WARM_UP):
            trainer.iterate(time.monotonic())
        before, slept_s, again_s = clocks(head), pool.slept_s, pool.again_s
        for _ in range(config.validate_every):
            trainer.iterate(time.monotonic())
        trainer.save()
        wall_s, _, _, machine_s = (now - then for now, then in zip(clocks(head), before, strict=True))
    slept_s, again_s = pool.slept_s - slept_s, pool.again_s - again_s
    phases = {phase: statistics.mean(lap.get(phase, 0.0) for lap in laps[WARM_UP:]) for phase in laps[-1]}
    say(
        f"{wall_s / config.validate_every:.2f} s an iteration of {config.modules} modules, of which "
        + ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in phases.items())
    )
    return {
        "ray_training_busy_512": slept_s / (ctx.slots * wall_s),
        "ray_training_useful_512": (slept_s - again_s) / (ctx.slots * wall_s),
        "ray_training_machine_busy": machine_s / (wall_s * (os.cpu_count() or 1)),
    }


def _simulate(trainer: Trainer, workload: Workload, pool: SleepingPool) -> None:
    """Make the trainer compile with `pool`, on a corpus of copies that has modules for two iterations."""
    copies = math.ceil(2 * trainer.config.modules / len(workload.weights))
    names = [f"{name}{COPY}{copy}" for name in workload.weights for copy in range(copies)]
    validation = [module.name for module in trainer.validation]
    compile_s = workload.sleeping.compile_s
    trainer.modules = {name: Module(name, workload.modules[original(name)].directory) for name in names}
    trainer.sampler = ModuleSampler({name: workload.weights[original(name)] for name in names}, trainer.config.seed)
    trainer.collector = dataclasses.replace(
        trainer.collector,
        pool=pool,
        baselines={name: trainer.baselines[original(name)] for name in [*names, *validation]},
        compile_s={name: compile_s[original(name)] for name in names},
    )


def _laps_of(trainer: Trainer) -> list[dict[str, float]]:
    """Return a list to which each iteration appends the seconds of its phases, as in its summaries."""
    laps: list[dict[str, float]] = []
    tell = trainer.summaries.iteration

    def iteration(*arguments: object) -> None:
        laps.append(dict(arguments[3]))  # type: ignore[call-overload]
        tell(*arguments)  # type: ignore[arg-type]

    trainer.summaries.iteration = iteration  # type: ignore[method-assign,assignment]
    return laps
