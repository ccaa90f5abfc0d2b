"""What an iteration of PPO costs beside the compiles that it cannot do without."""

from __future__ import annotations

import statistics
import time

from components.compiler.compile import Compiler
from components.compiler.measure import plain_compile_all
from components.ppo.config import PpoConfig
from tests.bench.context import BenchContext
from tests.bench.training import training

WORKERS = 2
VALIDATE_NEVER = 10**9
WARM_UP = 2
"""Iterations before any is timed: TensorFlow traces its functions in the first, and again if a shape is new."""


def measure(ctx: BenchContext) -> dict[str, float]:
    """ppo_overhead: wall time of an iteration (emit, sample, credit, update, checkpoint) over the plain compile of its
    modules as often as it sampled them, same clang and workers, median over iterations. Validation, which comes every
    few iterations and is compiles as well, is not in it.
    """
    config = PpoConfig(
        ctx.corpus, ctx.training, ctx.trace, ctx.warmstart, ctx.scratch / "root", ctx.scratch / "policy",
        iterations=WARM_UP + ctx.repeats, validate_every=VALIDATE_NEVER, workers=f"local:{WORKERS}",
    )  # fmt: skip
    ratios = []
    with training(config) as trainer:
        compiler = Compiler(trainer.clang, config.problem)
        for iteration in range(WARM_UP + ctx.repeats):
            names = trainer.sampler.peek(config.modules)
            started_s = time.perf_counter()
            trainer.iterate(started_s)
            iteration_s = time.perf_counter() - started_s
            if iteration >= WARM_UP:
                modules = [trainer.modules[name] for name in names] * config.samples
                ratios.append(iteration_s / plain_compile_all(trainer.pool, compiler, modules))
    return {"ppo_overhead": statistics.median(ratios)}
