"""Text sizes of the held-out modules under every variant."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from components.compiler.compile import Sample
from components.compiler.source_language import source_language
from components.evaluation.compiles import compile_variants, require_same_modules
from components.evaluation.config import EvaluationConfig
from components.evaluation.measurements import BASELINE, POLICY, SECTIONS, Measurements
from components.evaluation.variants import Variant
from components.formats.corpus import Module
from components.workers.pool import WorkerPool

_ALL = "text"


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
    sizes: dict[str, dict[str, dict[str, int]]] = {}
    compile_s: dict[str, float] = {}
    wanted = modules
    if earlier is not None:
        require_same_modules(modules, earlier)
        sizes = {name: _outcomes(earlier, name) for name in earlier.sizes if name != POLICY}
        compile_s = {name: seconds for name, seconds in (earlier.compile_s or {}).items() if name != POLICY}
        known = set(earlier.modules)
        wanted = [module for module in modules if module.name in known]
        variants = [variant for variant in variants if variant.name == POLICY]
    compiled = compile_variants(pool, config, variants, wanted, text_sizes, len(modules), (BASELINE, POLICY))
    sizes |= compiled.outcomes
    kept = compiled.kept

    def column(variant: str, size: str) -> np.ndarray:
        return np.array([sizes[variant][module.name][size] for module in kept], dtype=np.int64)

    known_by_section = [name for name in sizes if all(SECTIONS[0] in sizes[name][module.name] for module in kept)]
    return Measurements(
        modules=tuple(module.name for module in kept),
        projects=tuple(module.project for module in kept),
        unseen_project=np.array([module.project in heldout_projects for module in kept], dtype=bool),
        sizes={name: column(name, _ALL) for name in sizes},
        languages=tuple(source_language(module.arguments(), module.name) for module in kept),
        sections={name: {section: column(name, section) for section in SECTIONS} for name in known_by_section},
        excluded=(*(earlier.excluded if earlier else ()), *compiled.excluded),
        compile_s=compile_s | compiled.compile_s,
    )


def text_sizes(sample: Sample) -> dict[str, int]:
    """Return a sample's text bytes: all of them as llvm-size counts them, and by section where they are known."""
    return {_ALL: sample.text_size_bytes, **(sample.function_sizes.sections if sample.function_sizes else {})}


def _outcomes(measured: Measurements, variant: str) -> dict[str, dict[str, int]]:
    """Return what `text_sizes` said of each module."""
    columns = {_ALL: measured.sizes[variant], **measured.sections.get(variant, {})}
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return {module: dict(zip(columns, row, strict=True)) for module, row in zip(measured.modules, rows, strict=True)}
