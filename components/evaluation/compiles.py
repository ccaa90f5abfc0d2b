"""Compiles the held-out modules under every variant, whatever they are then judged by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from components.compiler.command_line import require_replayable
from components.compiler.compile import Compiler, Request, Sample
from components.compiler.quarantine import Quarantine, compile_all
from components.console import Progress, UserError
from components.evaluation.config import EvaluationConfig
from components.evaluation.measurements import Excluded, Measured
from components.evaluation.variants import Variant
from components.formats.corpus import Module
from components.workers.pool import WorkerPool


@dataclass(frozen=True)
class Compiled:
    """outcomes: variant -> module -> what was read of its sample. kept: modules that every variant compiled, in the
    given order. excluded: the others. compile_s: variant -> seconds, summed over its modules."""

    outcomes: dict[str, dict[str, Any]]
    kept: tuple[Module, ...]
    excluded: tuple[Excluded, ...]
    compile_s: dict[str, float]


@dataclass(frozen=True)
class _OutcomeOf:
    """Compiles a module once; what comes back is its outcome, not the log that it may be read from."""

    compiler: Compiler
    outcome: Callable[[Sample], Any]

    def __call__(self, request: Request) -> tuple[Any, float]:
        """Raises as Compiler does. The outcome, and seconds of compiling."""
        result = self.compiler(request)
        return self.outcome(result.samples[0]), result.compile_s


def compile_variants(
    pool: WorkerPool,
    config: EvaluationConfig,
    variants: Sequence[Variant],
    modules: Sequence[Module],
    outcome: Callable[[Sample], Any],
    total: int = 0,
    with_functions: Collection[str] = (),
) -> Compiled:
    """Compiles `modules` under each of `variants`.

    A module that fails under one variant, twice, is not compiled under the later ones.

    Args:
        outcome: reads a sample where the compile ran; a function of a module, for it may be pickled.
        total: modules that `config.max_failed_fraction` is of, if not `modules` are all.
        with_functions: names of variants whose samples have sizes of functions.

    Raises:
        UserError: more than `config.max_failed_fraction` of the modules failed, or all of them; or a module was
            compiled with options that are not replayed.
    """
    require_replayable(modules, config.allowed_options)
    quarantine = Quarantine(config.max_failed_fraction, total or len(modules))
    # Long compiles first, so that the workers end together.
    order = sorted(modules, key=lambda module: -module.bitcode.stat().st_size)
    outcomes: dict[str, dict[str, Any]] = {}
    compile_s: dict[str, float] = {}
    excluded: list[Excluded] = []
    for variant in variants:
        compiler = _OutcomeOf(
            Compiler(variant.clang, config.problem, config.timeout_s, config.allowed_options), outcome
        )
        left = [module for module in order if module.name not in quarantine]
        functions, flags = variant.name in with_functions, variant.extra_flags
        requests = [Request(module, variant.advisor, functions, flags) for module in left]
        found = outcomes[variant.name] = {}
        compile_s[variant.name] = 0.0
        with Progress(f"compiling held-out modules, {variant.name}", len(left)) as progress:
            for request, (read, seconds) in compile_all(pool, compiler, requests, quarantine, progress):
                found[request.module.name] = read
                compile_s[variant.name] += seconds
        excluded += [
            Excluded(error.module, variant.name, error.reason, error.detail)
            for error in quarantine.errors[len(excluded) :]
        ]
    kept = tuple(module for module in modules if module.name not in quarantine)
    if not kept:
        raise UserError(
            f"none of the {total or len(modules)} held-out modules compiles: {excluded[0].module}: "
            f"{excluded[0].detail}",
            "see whether corpus and clang belong together",
        )
    return Compiled(outcomes, kept, tuple(excluded), compile_s)


def require_same_modules(modules: Sequence[Module], earlier: Measured) -> None:
    """UserError unless `earlier` is of these modules."""
    known = {*earlier.modules, *(excluded.module for excluded in earlier.excluded)}
    if known != {module.name for module in modules}:
        raise UserError(
            "the earlier evaluation is of other held-out modules than the corpus has",
            "evaluate anew, without --evaluation",
        )
