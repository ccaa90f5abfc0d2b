"""Compiles the held-out modules under every variant."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from components.compiler.compile import Compiler, Request
from components.compiler.quarantine import Quarantine, compile_all
from components.console import Progress, UserError
from components.evaluation.config import EvaluationConfig
from components.evaluation.measurements import POLICY, Excluded, Measurements
from components.evaluation.variants import Variant
from components.formats.corpus import Module
from components.workers.pool import WorkerPool


def measure(
    pool: WorkerPool,
    config: EvaluationConfig,
    variants: Sequence[Variant],
    modules: Sequence[Module],
    heldout_projects: Collection[str],
    earlier: Measurements | None = None,
) -> Measurements:
    """Text sizes of `modules` under every variant.

    A module that fails under one variant, twice, is not compiled under the later ones and is in nobody's sum. Modules
    of the same content are counted as often as the corpus has them. What `earlier` has of the variants is taken over,
    and so are the modules that it left out; only its policy is compiled again.

    Raises:
        UserError: more than `config.max_failed_fraction` of the modules failed, or all of them.
    """
    quarantine = Quarantine(config.max_failed_fraction, len(modules))
    # Long compiles first, so that the workers end together.
    order = sorted(modules, key=lambda module: -module.bitcode.stat().st_size)
    sizes: dict[str, dict[str, int]] = {}
    compile_s: dict[str, float] = {}
    excluded: list[Excluded] = []
    if earlier is not None:
        _require_same_modules(modules, earlier)
        taken = {name: found.tolist() for name, found in earlier.sizes.items() if name != POLICY}
        sizes = {name: dict(zip(earlier.modules, found, strict=True)) for name, found in taken.items()}
        compile_s = {name: seconds for name, seconds in (earlier.compile_s or {}).items() if name != POLICY}
        order = [module for module in order if module.name in set(earlier.modules)]
        variants = [variant for variant in variants if variant.name == POLICY]
    for variant in variants:
        compiler = Compiler(variant.clang, config.problem, config.timeout_s)
        left = [module for module in order if module.name not in quarantine]
        requests = [Request(module, variant.advisor, extra_flags=variant.extra_flags) for module in left]
        found: dict[str, int] = {}
        compile_s[variant.name] = 0.0
        with Progress(f"compiling held-out modules, {variant.name}", len(left)) as progress:
            for _, result in compile_all(pool, compiler, requests, quarantine, progress):
                found[result.module_name] = result.samples[0].text_size_bytes
                compile_s[variant.name] += result.compile_s
        excluded += [
            Excluded(error.module, variant.name, error.reason, error.detail)
            for error in quarantine.errors[len(excluded) :]
        ]
        sizes[variant.name] = found
    left_out = {module.name for module in modules} - {module.name for module in order}
    kept = [module for module in modules if module.name not in quarantine and module.name not in left_out]
    if not kept:
        raise UserError(
            f"none of the {len(modules)} held-out modules compiles: {excluded[0].module}: {excluded[0].detail}",
            "see whether corpus and clang belong together",
        )
    return Measurements(
        modules=tuple(module.name for module in kept),
        projects=tuple(module.project for module in kept),
        unseen_project=np.array([module.project in heldout_projects for module in kept], dtype=bool),
        sizes={
            name: np.array([found[module.name] for module in kept], dtype=np.int64) for name, found in sizes.items()
        },
        excluded=(*(earlier.excluded if earlier else ()), *excluded),
        compile_s=compile_s,
    )


def _require_same_modules(modules: Sequence[Module], earlier: Measurements) -> None:
    known = {*earlier.modules, *(excluded.module for excluded in earlier.excluded)}
    if known != {module.name for module in modules}:
        raise UserError(
            "the earlier evaluation is of other held-out modules than the corpus has",
            "evaluate anew, without --evaluation",
        )
