"""Text sizes of the held-out modules under every variant."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from components.compiler.compile import Sample
from components.evaluation.compiles import compile_variants, require_same_modules
from components.evaluation.config import EvaluationConfig
from components.evaluation.measurements import POLICY, Measurements
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
    sizes: dict[str, dict[str, int]] = {}
    compile_s: dict[str, float] = {}
    wanted = modules
    if earlier is not None:
        require_same_modules(modules, earlier)
        taken = {name: found.tolist() for name, found in earlier.sizes.items() if name != POLICY}
        sizes = {name: dict(zip(earlier.modules, found, strict=True)) for name, found in taken.items()}
        compile_s = {name: seconds for name, seconds in (earlier.compile_s or {}).items() if name != POLICY}
        known = set(earlier.modules)
        wanted = [module for module in modules if module.name in known]
        variants = [variant for variant in variants if variant.name == POLICY]
    compiled = compile_variants(pool, config, variants, wanted, text_size_bytes, len(modules))
    sizes |= compiled.outcomes
    kept = compiled.kept
    return Measurements(
        modules=tuple(module.name for module in kept),
        projects=tuple(module.project for module in kept),
        unseen_project=np.array([module.project in heldout_projects for module in kept], dtype=bool),
        sizes={
            name: np.array([found[module.name] for module in kept], dtype=np.int64) for name, found in sizes.items()
        },
        excluded=(*(earlier.excluded if earlier else ()), *compiled.excluded),
        compile_s=compile_s | compiled.compile_s,
    )


def text_size_bytes(sample: Sample) -> int:
    """Of a sample, as llvm-size counts it."""
    return sample.text_size_bytes
