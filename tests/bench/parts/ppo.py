"""Overhead of a training iteration over its necessary compiles."""

from __future__ import annotations

import statistics
import time

from components.core import problems
from components.core.compiler.compile import Compiler
from components.core.formats.corpus import Module
from components.ppo.train import Trainer
from tests.bench.context import BenchContext
from tests.bench.plain_compile import time_plain_compiles
from tests.bench.training import timed_config, training

WARM_UP = 2
"""Untimed first iterations: TensorFlow traces its functions in the first, and again for a new shape."""


def measure(ctx: BenchContext) -> dict[str, float]:
    """ppo_overhead: wall time of an iteration with the default credit assignment (code generation, measuring flips,
    update, checkpoint), divided by the time of plain compiles of its modules, each as often as the iteration compiled
    it, with the same clang and workers; median over iterations. An iteration compiles a base and up to `samples` times
    with flips; small modules need fewer. Validation, which is compiles as well, is not included.

    Returns no figures for a problem whose objective is scores: there one compile forks at every flip.
    """
    if problems.get(ctx.problem).objective != "size":
        return {}
    config = timed_config(ctx, WARM_UP)
    ratios = []
    with training(config) as trainer:
        compiler = Compiler(trainer.clang, config.problem)
        for iteration in range(WARM_UP + ctx.repeats):
            started_s = time.perf_counter()
            trainer.iterate(started_s)
            trainer.save()
            iteration_s = time.perf_counter() - started_s
            if iteration >= WARM_UP:
                ratios.append(iteration_s / time_plain_compiles(trainer.pool, compiler, _compiled(trainer)))
    return {"ppo_overhead": statistics.median(ratios)}


def _compiled(trainer: Trainer) -> list[Module]:
    """Return the modules of the newest iteration, each as often as it was compiled, in rounds over those remaining."""
    rounds = range(max(trainer.compiles.values()))
    return [trainer.modules[name] for done in rounds for name, count in trainer.compiles.items() if count > done]
