"""What an iteration of a training costs beside the compiles that it cannot do without."""

from __future__ import annotations

import statistics
import time

from components import problems
from components.compiler.compile import Compiler
from components.compiler.measure import plain_compile_all
from components.formats.corpus import Module
from components.ppo.config import PpoConfig
from components.ppo.train import Trainer
from tests.bench.context import BenchContext
from tests.bench.training import training

WORKERS = 2
VALIDATE_NEVER = 10**9
WARM_UP = 2
"""Iterations before any is timed: TensorFlow traces its functions in the first, and again if a shape is new."""


def measure(ctx: BenchContext) -> dict[str, float]:
    """ppo_overhead: wall time of an iteration with the default credit assignment (emit, measure flips, update,
    checkpoint) over the plain compile of its modules as often as it compiled each, same clang and workers, median over
    iterations. That is a base and up to `samples` compiles with flips; small modules are exhausted by fewer. Validation
    is compiles as well and is not in it.

    Nothing for a problem judged by scores: there one compile forks at every flip.
    """
    if problems.get(ctx.problem).measure != "size":
        return {}
    config = PpoConfig(
        ctx.corpus, ctx.training, ctx.trace, ctx.warmstart, ctx.scratch / "root", ctx.scratch / "policy",
        iterations=WARM_UP + ctx.repeats, validate_every=VALIDATE_NEVER, workers=f"local:{WORKERS}",
    )  # fmt: skip
    ratios = []
    with training(config) as trainer:
        compiler = Compiler(trainer.clang, config.problem)
        for iteration in range(WARM_UP + ctx.repeats):
            started_s = time.perf_counter()
            trainer.iterate(started_s)
            iteration_s = time.perf_counter() - started_s
            if iteration >= WARM_UP:
                ratios.append(iteration_s / plain_compile_all(trainer.pool, compiler, _compiled(trainer)))
    return {"ppo_overhead": statistics.median(ratios)}


def _compiled(trainer: Trainer) -> list[Module]:
    """The modules of the newest iteration, each as often as it was compiled, in rounds over those that are left."""
    rounds = range(max(trainer.compiles.values()))
    return [trainer.modules[name] for done in rounds for name, count in trainer.compiles.items() if count > done]
