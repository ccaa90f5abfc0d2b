"""How busy one training keeps the slots of a large cluster, all that its head does between the compiles included."""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
import time

from components.console import say
from components.formats.corpus import Module
from components.ppo.config import PpoConfig
from components.ppo.sampler import Sampler
from components.ppo.train import Trainer
from tests.bench.asleep import COPY, SleepingPool, original
from tests.bench.context import BenchContext
from tests.bench.simulation import clocks, simulated
from tests.bench.training import training
from tests.bench.workload import Workload, read_workload

MODULES_A_SLOT = 12
"""Of an iteration: some 30 s of the slots."""
WARM_UP = 1
"""Iterations before any is timed: the first has the slots import what they need, and validates before it compiles."""


def measure(ctx: BenchContext) -> dict[str, float]:
    """ray_training_busy_512: share of the time in which ctx.slots slots of a simulated cluster (simulation.py) sleep
    in place of compiling, over as many iterations of a training as there are from one validation to the next: emit,
    measure flips, add them to those that are learned from, checkpoint; in the last of them the fit, which begins with
    it, and the validation behind it. It is the training's first fit, so that TensorFlow traces its functions in it.
    Only the compiles are not real, and the corpus is that of the run, each module as often as it takes, under other
    names.

    ray_training_useful_512: the same without the bases that further shares of a divided module compile again.
    ray_training_machine_busy: how much of this machine was in use. It carries head and nodes: near 1, it is the machine
    that limits. Else it is what slots wait for between the compiles of two iterations: the last of them to end, what is
    left of a fit (the phase "update"), the validation, whose compiles are fewer than the slots, and the policy's own
    compile.
    """
    config = PpoConfig(
        ctx.corpus, ctx.training, ctx.trace, ctx.warmstart, ctx.scratch / "root", ctx.scratch / "policy",
        iterations=10**6, modules=MODULES_A_SLOT * ctx.slots, workers="local:1",
    )  # fmt: skip
    answers = ctx.scratch / "answers"
    answers.mkdir()
    workload = read_workload(ctx.run, answers)
    with training(config) as trainer, simulated(ctx.slots) as (cluster, head):
        pool = SleepingPool(cluster, workload.asleep)
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
    """Have the trainer compile by `pool`, on a corpus of copies that has modules for two iterations."""
    copies = math.ceil(2 * trainer.config.modules / len(workload.weights))
    names = [f"{name}{COPY}{copy}" for name in workload.weights for copy in range(copies)]
    validation = [module.name for module in trainer.validation]
    compile_s = workload.asleep.compile_s
    trainer.modules = {name: Module(name, workload.modules[original(name)].directory) for name in names}
    trainer.sampler = Sampler({name: workload.weights[original(name)] for name in names}, trainer.config.seed)
    trainer.collector = dataclasses.replace(
        trainer.collector,
        pool=pool,
        baselines={name: trainer.baselines[original(name)] for name in [*names, *validation]},
        compile_s={name: compile_s[original(name)] for name in names},
    )


def _laps_of(trainer: Trainer) -> list[dict[str, float]]:
    """Return a list that grows by the seconds of each phase of an iteration, as its summaries have them."""
    laps: list[dict[str, float]] = []
    tell = trainer.summaries.iteration

    def iteration(*arguments: object) -> None:
        laps.append(dict(arguments[3]))  # type: ignore[call-overload]
        tell(*arguments)  # type: ignore[arg-type]

    trainer.summaries.iteration = iteration  # type: ignore[method-assign,assignment]
    return laps
