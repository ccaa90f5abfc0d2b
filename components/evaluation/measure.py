"""Compiles the held-out modules under every variant and collects the values of their cases."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from components.core.compiler.compile import Compiler, Request
from components.core.compiler.objects.function_digests import FunctionDigests
from components.core.compiler.objects.function_sizes import FunctionSizes
from components.core.compiler.quarantine import Quarantine, compile_all
from components.core.compiler.replay.command_line import require_replayable
from components.core.compiler.source_groups import group_by_source
from components.core.compiler.source_language import source_language
from components.core.formats.corpus import Module
from components.core.objectives import Objective
from components.evaluation.config import EvaluationConfig
from components.evaluation.measurements import BASELINE, POLICY, SECTIONS, Measurements
from components.evaluation.metrics_types import Excluded
from components.evaluation.overlap import OverlapCounter
from components.evaluation.variants import Variant
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.workers.pool import WorkerPool


@dataclass(frozen=True)
class _ModuleResult:
    """Result of one compile: the outcome of the objective, bytes by section if they are known, functions if wanted."""

    outcome: Mapping[str, float]
    sections: Mapping[str, int]
    functions: FunctionSizes | None = None


def _compile_and_reduce(compiler: Compiler, objective: Objective, request: Request) -> tuple[_ModuleResult, float]:
    """Return a reduced result and the seconds of compiling, so that the log, which may be large, stays on the worker.
    Raises what Compiler raises."""
    result = compiler(request)
    sample = result.samples[0]
    sizes = sample.function_sizes
    sections, functions = sizes.sections if sizes else {}, sizes if request.want_bodies else None
    return _ModuleResult(objective.outcome(sample), sections, functions), result.compile_s


@dataclass(frozen=True)
class _CompileResults:
    """Results by variant and module.

    Attributes:
        results: variant -> module -> result.
        modules: modules that every variant compiled, in the given order. excluded: the others.
        compile_s: variant -> seconds, summed over its modules.
    """

    results: dict[str, dict[str, _ModuleResult]]
    modules: tuple[Module, ...]
    excluded: tuple[Excluded, ...]
    compile_s: dict[str, float]


def measure(
    pool: WorkerPool,
    config: EvaluationConfig,
    objective: Objective,
    variants: Sequence[Variant],
    modules: Sequence[Module],
    heldout_projects: Collection[str],
    earlier: Measurements | None = None,
    trained: FunctionDigests | None = None,
) -> Measurements:
    """Return the values of `modules` under every variant.

    A module that fails twice under one variant is not compiled under later ones and has no values. Modules with the
    same content count as often as the corpus has them. Values that the release clang does not change are reused from
    `earlier`: those of all variants except the policy, and all values of an objective that only the training clang
    logs, because the release clang takes the same decisions.

    Args:
        trained: functions that training compiled, for `Measurements.overlap`, which `earlier` has already.

    Raises:
        UserError: all modules fail, or more than `config.max_failed_fraction` of them.
    """
    if earlier is not None:
        _require_same_modules(modules, earlier)
        if objective.needs_log:
            return earlier
        earlier_names = set(earlier.modules)
        to_compile = [module for module in modules if module.name in earlier_names]
        variants = [variant for variant in variants if variant.name == POLICY]
    else:
        to_compile = list(modules)
    counter = None if trained is None or earlier is not None else OverlapCounter(trained)
    compiled = _compile_variants(pool, config, objective, variants, to_compile, len(modules), counter)
    if earlier is not None:
        results = {name: _earlier_results(earlier, name) for name in earlier.values if name != POLICY}
        compile_s = {name: s for name, s in (earlier.compile_s or {}).items() if name != POLICY}
        compiled = replace(compiled, results=results | compiled.results, compile_s=compile_s | compiled.compile_s)
    measured = _collect(objective, compiled, heldout_projects, earlier)
    if earlier is not None and earlier.overlap is not None:
        return replace(measured, overlap=earlier.overlap.of(np.isin(earlier.modules, measured.modules)))
    if counter is None:
        return measured
    return replace(measured, overlap=counter.overlap(measured.modules, measured.projects))


def _sources(modules: Sequence[Module], earlier: Measurements | None) -> np.ndarray:
    """Return the number of the source of each module, int64 [M]: its group of `group_by_source`.

    Those of an earlier evaluation are reused, unless each module has its own, as in evaluations that do not know them.
    """
    if earlier is not None and not np.array_equal(earlier.sources, np.arange(earlier.sources.size)):
        return earlier.sources[np.isin(earlier.modules, [module.name for module in modules])]
    sources = np.zeros(len(modules), np.int64)
    for number, group in enumerate(group_by_source(modules, seed=0)):
        sources[list(group.indices)] = number
    return sources


def _collect(
    objective: Objective, compiled: _CompileResults, heldout_projects: Collection[str], earlier: Measurements | None
) -> Measurements:
    modules, results = compiled.modules, compiled.results
    functions: list[str] = []
    module_indices: list[int] = []
    columns: dict[str, list[float]] = {name: [] for name in results}
    for module_index, module in enumerate(modules):
        outcomes = {name: by_module[module.name].outcome for name, by_module in results.items()}
        for case in outcomes[BASELINE]:
            # All variants log the same functions, see problems/regalloc.py. Comparing a case requires all its values.
            if all(case in outcome for outcome in outcomes.values()):
                functions.append(case)
                module_indices.append(module_index)
                for name, outcome in outcomes.items():
                    columns[name].append(outcome[case])
    cases_are_modules = objective.labels.case == "module"
    by_section = [name for name, by_module in results.items() if all(by_module[m.name].sections for m in modules)]
    return Measurements(
        objective=objective,
        modules=tuple(module.name for module in modules),
        projects=tuple(module.project for module in modules),
        sources=_sources(modules, earlier),
        unseen_project=np.array([module.project in heldout_projects for module in modules], dtype=bool),
        values={
            name: np.array(column, dtype=np.int64 if objective.additive else np.float64)
            for name, column in columns.items()
        },
        functions=() if cases_are_modules else tuple(functions),
        module=np.array(module_indices, dtype=np.int64),
        languages=tuple(source_language(m.arguments(), m.name) for m in modules) if cases_are_modules else (),
        sections={
            name: {
                section: np.array([results[name][module.name].sections[section] for module in modules], dtype=np.int64)
                for section in SECTIONS
            }
            for name in by_section
        },
        excluded=(*(earlier.excluded if earlier else ()), *compiled.excluded),
        compile_s=compiled.compile_s,
    )


def _compile_variants(
    pool: WorkerPool,
    config: EvaluationConfig,
    objective: Objective,
    variants: Sequence[Variant],
    modules: Sequence[Module],
    total: int,
    counter: OverlapCounter | None,
) -> _CompileResults:
    """Compile `modules` under each variant; `config.max_failed_fraction` is a fraction of `total` modules.

    Args:
        counter: gets the functions of the heuristic and of the policy; None if they are not wanted.
    """
    require_replayable(modules, config.allowed_options)
    quarantine = Quarantine(config.max_failed_fraction, total)
    # Long compiles first, so that the workers finish at about the same time.
    order = sorted(modules, key=lambda module: -module.bitcode.stat().st_size)
    results: dict[str, dict[str, _ModuleResult]] = {}
    compile_s: dict[str, float] = {}
    excluded: list[Excluded] = []
    for variant in variants:
        compiler = variant.compiler(variant.clang, config.problem, config.timeout_s, config.allowed_options)
        remaining = [module for module in order if module.name not in quarantine]
        with_functions = not objective.needs_log and variant.name in (BASELINE, POLICY)
        counted = with_functions and counter is not None
        requests = [
            Request(module, variant.advisor, with_functions, variant.extra_flags, want_bodies=counted)
            for module in remaining
        ]
        variant_results = results[variant.name] = {}
        compile_s[variant.name] = 0.0
        compile_and_reduce = partial(_compile_and_reduce, compiler, objective)
        with Progress(f"compiling modules, {variant.name}", len(remaining)) as progress:
            for request, (result, seconds) in compile_all(pool, compile_and_reduce, requests, quarantine, progress):
                variant_results[request.module.name] = replace(result, functions=None)
                if counter is not None and result.functions is not None:
                    add = counter.add_baseline if variant.name == BASELINE else counter.add_policy
                    add(request.module.name, result.functions)
                compile_s[variant.name] += seconds
        excluded += [
            Excluded(error.module, variant.name, error.reason, error.detail)
            for error in quarantine.errors[len(excluded) :]
        ]
    compiled = tuple(module for module in modules if module.name not in quarantine)
    if not compiled:
        raise UserError(
            f"none of the {total} held-out modules compiles: {excluded[0].module}: {excluded[0].detail}",
            "check that the clang has the LLVM version that the corpus was extracted with",
        )
    return _CompileResults(results, compiled, tuple(excluded), compile_s)


def _earlier_results(measured: Measurements, variant: str) -> dict[str, _ModuleResult]:
    """Return the result of each module from earlier measurements of modules."""
    parts: Mapping[str, Any] = measured.sections.get(variant, {})
    return {
        name: _ModuleResult({"": value}, {section: int(column[i]) for section, column in parts.items()})
        for i, (name, value) in enumerate(zip(measured.modules, measured.values[variant].tolist(), strict=True))
    }


def _require_same_modules(modules: Sequence[Module], earlier: Measurements) -> None:
    measured = {*earlier.modules, *(excluded.module for excluded in earlier.excluded)}
    if measured != {module.name for module in modules}:
        raise UserError(
            "the earlier evaluation measured other held-out modules than those of the corpus",
            "evaluate again, without --evaluation",
        )
