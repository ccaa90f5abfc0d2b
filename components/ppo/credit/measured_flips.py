"""Measures flips of one module on the worker that compiles it: compiles here, and has `core/counterfactual` attribute
the differences to flips.

A module is compiled once under the greedy policy (the base), and again with sets of its decisions flipped. The trainer
receives a row for each measured flip: the observation, the action of the base, the alternative, and its gain.

The flip sets of a large module may be divided among several jobs: each compiles the base again, which results in the
same flip sets, and then compiles every n-th of them. `merge` combines their results to exactly that of one job.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.sample import Sample
from components.core.counterfactual import inlining, regalloc
from components.core.counterfactual.flip_sets import estimate_uncertainty
from components.core.counterfactual.flips import NO_SAVINGS, FlipPlan, FlipSavings
from components.core.formats.features import FeatureSpec
from components.core.objectives import OBJECTIVES
from components.core.objectives.objective import Outcome
from components.core.policy.tf.observation import finite_logits, observation_shape, observations
from components.ppo.learners.replay import ReplayRows
from components.ppo.module_rollout import concatenate_contexts


@dataclass(frozen=True)
class FlipJob(Request):
    """A request to measure a part of a module's flip sets, 0 <= part < parts."""

    part: int = 0
    parts: int = 1

    def flip_compiles(self, total: int) -> int:
        """Return how many of a module's `total` compiles with flips this job has at most."""
        return len(range(self.part, total, self.parts))


@dataclass(frozen=True)
class FlipResult:
    """Measurements of flips of one module.

    A decision may have several, in different flip sets; after `merge`, a row for each of its alternatives.

    Attributes:
        part: part of the job.
        outcome: outcome of the base, see `Objective.outcome`.
        savings: m rows.
        rows: the same for learning; the gain of a row is `savings.saved`.
        compiles: number of compiles, including the base of each part.
    """

    module_name: str
    part: int
    outcome: Outcome
    savings: FlipSavings
    rows: ReplayRows
    compiles: int

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, field.name) for field in fields(self)]
        # Higher levels cost more time than they save.
        return _unpack, (zlib.compress(pickle.dumps(values, pickle.HIGHEST_PROTOCOL), 1),)


def _unpack(content: bytes) -> FlipResult:
    return FlipResult(*pickle.loads(zlib.decompress(content)))


def merge(results: Sequence[FlipResult]) -> FlipResult:
    """Combine the results of all parts of a module; what is returned does not depend on their number.

    A decision's gain is the mean of its single measurements, or of those together with other calls of the callee,
    whichever is greater, because the policy may decide the other calls alike. A decision that loses alone and was not
    measured together with its group is left out, because it is unknown whether it loses.
    """
    results = sorted(results, key=lambda result: result.part)
    savings = FlipSavings.concatenate([result.savings for result in results])
    order = np.lexsort((savings.flip_set, savings.alternative, savings.decision))
    tried = np.stack([savings.decision, savings.alternative], 1)[order]
    begins = np.flatnonzero(np.any(np.diff(tried, axis=0, prepend=-1), axis=1))
    of_decision = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(order)))
    gain, alone = savings.saved[order], savings.together[order] == 1
    means = [_average(gain[rows], of_decision[rows], len(begins)) for rows in (alone, ~alone)]
    best = np.fmax(*means)
    is_known = ~((best < 0) & np.isnan(means[1]) & (savings.group_size[order[begins]] > 1))
    first, best = order[begins][is_known], best[is_known]
    return FlipResult(
        results[0].module_name,
        0,
        results[0].outcome,
        replace(savings.take(first), saved=best),
        replace(ReplayRows.concatenate([result.rows for result in results]).take(first), gain=best),
        sum(result.compiles for result in results),
    )


def _average(gain: NDArray[np.float64], group: NDArray[np.intp], groups: int) -> NDArray[np.float64]:
    """Return float64 [groups], the mean gain of each group, added in order; NaN for groups without gains."""
    number = np.bincount(group, minlength=groups)
    return np.where(number > 0, np.bincount(group, gain, groups) / np.maximum(number, 1), np.nan)


def attribution_error_percent(results: Sequence[FlipResult]) -> float:
    """Return the difference of attributed and real changes of the compiles, relative to all attributed changes."""
    attributed = sum(result.savings.attributed for result in results)
    return 100 * sum(result.savings.error for result in results) / attributed if attributed else 0.0


@dataclass(frozen=True)
class MeasureModule:
    """Measures flips of one module at a time; may be pickled and called in any thread or process.

    Attributes:
        features, buckets: of the policy.
        flip_compiles: maximum compiles with flips per module; for problems with scores, flips per function.
        seed: determines the choice of flips, together with the module's name.
        definition_counts: project -> function -> number of the project's objects that define it.
    """

    compiler: Compiler
    features: tuple[FeatureSpec, ...]
    buckets: Mapping[str, NDArray[np.float64]]
    flip_compiles: int
    seed: int
    definition_counts: Mapping[str, Mapping[str, int]]

    def __call__(self, job: FlipJob) -> FlipResult:
        """Measure flips of a module under the policy of the job's advisor."""
        problem = problems.get(self.compiler.problem)
        objective = OBJECTIVES[problem.objective]
        first = self.compiler(job)
        base = first.samples[0]
        columns: dict[str, NDArray[Any]] = {}
        savings, compiles = NO_SAVINGS, 1
        action, logits = np.zeros(0, np.int64), np.zeros((0, problem.policy.num_actions), np.float32)
        observed = np.zeros((0, *observation_shape(problem, self.features)), np.float32)
        if base.log is not None and base.log.decisions:
            columns = concatenate_contexts(base)
            action = columns[problem.policy.decision].reshape(-1)
            logits = finite_logits(columns[problem.policy.logits].reshape(-1, problem.policy.num_actions))
            plan = self._plan(job, base, action, logits).take_part(job.part, job.parts)
            if plan.forced:
                savings, compiles = self._measure(job, base, plan), 1 + len(plan.forced)
        if columns:
            chosen = {name: column[savings.decision] for name, column in columns.items()}
            observed = observations(problem, self.features, self.buckets, chosen)
        rows = ReplayRows(
            observed, logits[savings.decision], action[savings.decision], savings.alternative, savings.saved
        )
        return FlipResult(first.module_name, job.part, objective.outcome(base), savings, rows, compiles)

    @property
    def _forks_at_flips(self) -> bool:
        return OBJECTIVES[problems.get(self.compiler.problem).objective].forks_at_flips

    def _plan(self, job: FlipJob, base: Sample, action: NDArray[np.int64], logits: NDArray[np.float32]) -> FlipPlan:
        if self._forks_at_flips:
            assert base.log is not None
            return regalloc.plan_flips(job.module.name, base.log, self.flip_compiles, self.seed)
        random = np.random.default_rng([self.seed, zlib.crc32(job.module.name.encode())])
        return inlining.plan_flips(base, action, estimate_uncertainty(logits), self.flip_compiles, random)

    def _measure(self, job: FlipJob, base: Sample, plan: FlipPlan) -> FlipSavings:
        """Return what the flips of a plan with at least one compile save."""
        advisor = Advisor("policy", policy=job.advisor.policy, samples=len(plan.forced))
        if self._forks_at_flips:
            (flipped,) = self.compiler(Request(job.module, advisor, flips=plan.forced[0])).samples
            assert flipped.flip_scores is not None
            return regalloc.attribute_savings(job.module.name, base, plan, flipped.flip_scores)
        samples = self.compiler(Request(job.module, advisor, want_functions=True, forced=plan.forced)).samples
        return inlining.attribute_savings(base, plan, samples, self.definition_counts.get(job.module.project))
