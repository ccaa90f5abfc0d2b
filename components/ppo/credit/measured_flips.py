"""Measures flips of one module on the worker that compiles it.

A module is compiled once under the greedy policy (the base), and again with sets of its decisions flipped. The trainer
receives a row for each measured flip: the observation, the action of the base, the alternative, and its gain.

The flip sets of a large module may be divided into shares, each measured by one request: it compiles the base again,
which results in the same flip sets, and then compiles every n-th of them. `merge` combines the shares to exactly the
result of one request.
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
from components.core.counterfactual.flip_sets import uncertainty
from components.core.formats.features import FeatureSpec
from components.core.objectives import OBJECTIVES
from components.core.objectives.objective import Outcome
from components.core.policy.tf.observation import finite_logits, observation_shape, observations
from components.ppo.learners.replay import Flips
from components.ppo.module_rollout import log_columns


@dataclass(frozen=True)
class FlipRequest(Request):
    """A request to measure a share of a module's flip sets, 0 <= share < shares."""

    share: int = 0
    shares: int = 1

    def flip_compiles(self, total: int) -> int:
        """Return how many of a module's `total` compiles with flips this request has at most."""
        return len(range(self.share, total, self.shares))


@dataclass(frozen=True)
class FlipShare:
    """m measurements of flips of one module; a decision may have several in different flip sets.

    Attributes:
        share: share of the request.
        outcome: outcome of the base, see `Objective.outcome`.
        flips: one row per measurement.
        decision: int64 [m], rows of the base's log.
        flip_set: int64 [m], number of the flip set in the module.
        together: int64 [m], number of decisions that were flipped together, including this one, which share the gain.
        group_size: int64 [m], number of decisions that could be flipped together, see `FlipPlan`.
        error, attributed: see MeasuredFlips.
        compile_s: sum over the compiles.
        compiles: number of compiles, including the base.
    """

    module_name: str
    share: int
    outcome: Outcome
    flips: Flips
    decision: NDArray[np.int64]
    flip_set: NDArray[np.int64]
    together: NDArray[np.int64]
    group_size: NDArray[np.int64]
    error: float
    attributed: float
    compile_s: float
    compiles: int

    def __reduce__(self) -> tuple[Any, ...]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        # Higher levels cost more time than they save.
        return _unpack, (zlib.compress(pickle.dumps(values, pickle.HIGHEST_PROTOCOL), 1),)


def _unpack(content: bytes) -> FlipShare:
    return FlipShare(**pickle.loads(zlib.decompress(content)))


@dataclass(frozen=True)
class ModuleFlips:
    """Measurements of one module, with one row per alternative of a decision.

    Other attributes: see FlipShare.
    """

    module_name: str
    outcome: Outcome
    flips: Flips
    error: float
    attributed: float
    compile_s: float
    compiles: int


def merge(shares: Sequence[FlipShare]) -> ModuleFlips:
    """Combine all shares of a module; the result does not depend on their number.

    A decision's gain is the mean of its single measurements, or of those together with other calls of the callee,
    whichever is greater, because the policy may decide the other calls alike. A decision that loses alone and was not
    measured together with its group is left out, because it is unknown whether it loses.
    """
    shares = sorted(shares, key=lambda share: share.share)
    flips = Flips.concatenate([share.flips for share in shares])
    joined = {
        name: np.concatenate([getattr(share, name) for share in shares])
        for name in ("decision", "flip_set", "together", "group_size")
    }
    order = np.lexsort((joined["flip_set"], flips.alternative, joined["decision"]))
    tried = np.stack([joined["decision"], flips.alternative], 1)[order]
    begins = np.flatnonzero(np.any(np.diff(tried, axis=0, prepend=-1), axis=1))
    of_decision = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(order)))
    gain, alone = flips.gain[order], joined["together"][order] == 1
    means = [_means(gain[rows], of_decision[rows], len(begins)) for rows in (alone, ~alone)]
    best = np.fmax(*means)
    unknown = (best < 0) & np.isnan(means[1]) & (joined["group_size"][order[begins]] > 1)
    return ModuleFlips(
        shares[0].module_name,
        shares[0].outcome,
        replace(flips.take(order[begins]), gain=best).take(np.flatnonzero(~unknown)),
        # Sums of bytes are exact in any order; problems with scores have only one share.
        sum(share.error for share in shares),
        sum(share.attributed for share in shares),
        sum(share.compile_s for share in shares),
        sum(share.compiles for share in shares),
    )


def _means(gain: NDArray[np.float64], of: NDArray[np.intp], count: int) -> NDArray[np.float64]:
    """Return float64 [count], the mean gain of each group, added in order; NaN for groups without gains."""
    number = np.bincount(of, minlength=count)
    return np.where(number > 0, np.bincount(of, gain, count) / np.maximum(number, 1), np.nan)


@dataclass(frozen=True)
class MeasureModule:
    """Measures flips of one module at a time; may be pickled and called in any thread or process.

    Attributes:
        features, buckets: of the policy.
        flip_compiles: maximum compiles with flips per module; for problems with scores, flips per function.
        seed: determines the choice of flips, together with the module's name.
        objects: project -> function -> number of the project's objects that define it, see `measure_flips`.
    """

    compiler: Compiler
    features: tuple[FeatureSpec, ...]
    buckets: Mapping[str, NDArray[np.float64]]
    flip_compiles: int
    seed: int
    objects: Mapping[str, Mapping[str, int]]

    def __call__(self, request: FlipRequest) -> FlipShare:
        """Measure flips of a module under the policy of the request's advisor.

        Raises:
            CompileError, UserError: as Compiler.
        """
        problem = problems.get(self.compiler.problem)
        first = self.compiler(request)
        base = first.samples[0]
        objective = OBJECTIVES[problem.objective]
        outcome = objective.outcome(base)
        rows = None
        if base.log is not None and base.log.decisions:
            columns = log_columns(base)
            logits = finite_logits(columns[problem.policy.logits].reshape(-1, problem.policy.num_actions))
            measure = self._flip_scores if objective.flips_share_a_compile else self._flip_sizes
            rows = measure(request, base, columns[problem.policy.decision].reshape(-1), logits)
        if rows is None:
            empty = (np.zeros(0, np.int64),) * 4
            no_flips = self._no_flips()
            return FlipShare(first.module_name, request.share, outcome, no_flips, *empty, 0, 0, first.compile_s, 1)
        chosen = {name: column[rows.decision] for name, column in columns.items()}
        flips = Flips(
            observations(problem, self.features, self.buckets, chosen),
            logits[rows.decision],
            columns[problem.policy.decision].reshape(-1)[rows.decision],
            rows.alternative,
            rows.gain,
        )
        return FlipShare(
            first.module_name,
            request.share,
            outcome,
            flips,
            rows.decision,
            rows.flip_set,
            rows.together,
            rows.group_size,
            rows.error,
            rows.attributed,
            first.compile_s + rows.compile_s,
            1 + rows.compiles,
        )

    def _flip_sizes(
        self, request: FlipRequest, base: Sample, action: NDArray[np.int64], logits: NDArray[np.float32]
    ) -> _Rows | None:
        """Measure flip sets of inlining decisions, each in a separate compile."""
        random = np.random.default_rng([self.seed, zlib.crc32(request.module.name.encode())])
        plan = inlining.plan_flips(base, action, uncertainty(logits), self.flip_compiles, random)
        plan = plan.share(request.share, request.shares)
        if not plan.forced:
            return None
        advisor = Advisor("policy", policy=request.advisor.policy, samples=len(plan.forced))
        flipped = self.compiler(Request(request.module, advisor, want_functions=True, forced=plan.forced))
        found = inlining.measure_flips(base, plan, flipped.samples, self.objects.get(request.module.project))
        return _Rows(
            found.decision,
            found.flip_set,
            found.together,
            plan.group_size[found.decision],
            1 - action[found.decision],
            found.saved_bytes,
            found.attributed_error_bytes,
            found.attributed_bytes,
            flipped.compile_s,
            len(plan.forced),
        )

    def _flip_scores(
        self, request: FlipRequest, base: Sample, action: NDArray[np.int64], logits: NDArray[np.float32]
    ) -> _Rows | None:
        """Measure flips of evictions in one compile that forks at each: they affect only their own function's score."""
        assert base.log is not None
        flips = regalloc.choose_flips(request.module.name, base.log, self.flip_compiles, self.seed)
        if not len(flips):
            return None
        advisor = Advisor("policy", policy=request.advisor.policy, samples=1)
        flipped = self.compiler(Request(request.module, advisor, flips=flips.decisions()))
        scores = flipped.samples[0].flip_scores
        assert scores is not None
        found = regalloc.measure_flips(flips, base, scores)
        attributed = float(np.abs(found.worth).sum())
        no_set, alone = np.zeros_like(found.row), np.ones_like(found.row)
        return _Rows(found.row, no_set, alone, alone, found.action, found.worth, 0.0, attributed, flipped.compile_s, 1)

    def _no_flips(self) -> Flips:
        problem = problems.get(self.compiler.problem)
        observed = np.zeros((0, *observation_shape(problem, self.features)), np.float32)
        none = np.zeros(0, np.int64)
        return Flips(observed, np.zeros((0, problem.policy.num_actions), np.float32), none, none, np.zeros(0))


@dataclass(frozen=True)
class _Rows:
    """Measurements of either problem; see FlipShare."""

    decision: NDArray[np.int64]
    flip_set: NDArray[np.int64]
    together: NDArray[np.int64]
    group_size: NDArray[np.int64]
    alternative: NDArray[np.int64]
    gain: NDArray[np.float64]
    error: float
    attributed: float
    compile_s: float
    compiles: int
