"""Scores of the functions of the held-out modules under every variant."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from components.compiler.compile import Sample
from components.evaluation.compiles import compile_variants, require_same_modules
from components.evaluation.config import EvaluationConfig
from components.evaluation.measurements import BASELINE
from components.evaluation.score_measurements import ScoreMeasurements
from components.evaluation.variants import Variant
from components.formats.corpus import Module
from components.workers.pool import WorkerPool


def measure_scores(
    pool: WorkerPool,
    config: EvaluationConfig,
    variants: Sequence[Variant],
    modules: Sequence[Module],
    heldout_projects: Collection[str],
    earlier: ScoreMeasurements | None = None,
) -> ScoreMeasurements:
    """Scores of the functions of `modules` under every variant, in the order in which the baseline logs them.

    A module that fails under one variant, twice, is not compiled under the later ones and is in no mean. `earlier`
    has it all: only a training clang logs scores, and a release clang that carries the policy takes the same decisions
    as it does. Nothing is compiled then.

    Raises:
        UserError: more than `config.max_failed_fraction` of the modules failed, or all of them.
    """
    if earlier is not None:
        require_same_modules(modules, earlier)
        return earlier
    compiled = compile_variants(pool, config, variants, modules, Sample.readable_scores)
    functions, module = [], []
    columns: dict[str, list[float]] = {name: [] for name in compiled.outcomes}
    for place, kept in enumerate(compiled.kept):
        found = {name: outcomes[kept.name] for name, outcomes in compiled.outcomes.items()}
        for function in found[BASELINE]:
            # All log the same functions, see problems/regalloc.py; one that some did not has nothing to compare with.
            if all(function in scores for scores in found.values()):
                functions.append(function)
                module.append(place)
                for name, scores in found.items():
                    columns[name].append(scores[function])
    return ScoreMeasurements(
        modules=tuple(kept.name for kept in compiled.kept),
        projects=tuple(kept.project for kept in compiled.kept),
        unseen_project=np.array([kept.project in heldout_projects for kept in compiled.kept], dtype=bool),
        functions=tuple(functions),
        module=np.array(module, dtype=np.int64),
        scores={name: np.array(scores, dtype=np.float64) for name, scores in columns.items()},
        excluded=compiled.excluded,
        compile_s=compiled.compile_s,
    )
