"""What one module's counterfactual compiles teach, made where the module is compiled.

A module is compiled once under the greedy policy (the base), and again with sets of its decisions flipped. What goes
back to the trainer is a row for each flip that was measured: what was observed, what the base did, what was tried
instead and what that saved.

The flip sets of a large module may be divided into shares, each measured by a request of its own: it compiles the base
again, which chooses the same flip sets, and then every so many-th of them. `merge` makes of the shares what one request
would have measured, to the last bit.
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
from components.core.compiler.compile import Compiler, Request, Sample
from components.core.counterfactual import inlining, regalloc
from components.core.counterfactual.flip_sets import uncertainty
from components.core.formats.features import FeatureSpec
from components.core.objectives import OBJECTIVES
from components.core.objectives.objective import Outcome
from components.core.policy.observation import finite_logits, observation_shape, observations
from components.ppo.learners.replay import Flips
from components.ppo.module_rollout import log_columns


@dataclass(frozen=True)
class FlipRequest(Request):
    """A module whose base is compiled, and a share of its flip sets, 0 <= share < shares."""

    share: int = 0
    shares: int = 1

    def flip_compiles(self, of_module: int) -> int:
        """Return how many of a module's compiles with flips this request has, at most."""
        return len(range(self.share, of_module, self.shares))


@dataclass(frozen=True)
class FlipShare:
    """m measurements of flips of one module; a decision may have several, in different flip sets.

    Attributes:
        share: of the request.
        outcome: of the base, see `Objective.outcome`.
        flips: a row for each measurement.
        decision: int64 [m], rows of the base's log.
        flip_set: int64 [m], number of the flip set in the module.
        together: int64 [m], with how many decisions, itself among them, it was flipped; `gain` is its share.
        group_size: int64 [m], with how many it could have been flipped, see `FlipPlan`.
        error, attributed: see MeasuredFlips.
        compile_s: sum over the compiles.
        compiles: how many there were, the base among them.
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
        # Level 1: what more would save is less than its time.
        return _unpacked, (zlib.compress(pickle.dumps(values, pickle.HIGHEST_PROTOCOL), 1),)


def _unpacked(content: bytes) -> FlipShare:
    return FlipShare(**pickle.loads(zlib.decompress(content)))


@dataclass(frozen=True)
class ModuleFlips:
    """What was measured of one module, each alternative of a decision once.

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
    """Return what all shares of a module measured, the same however it was divided.

    A decision's gain is the mean of its measurements, or of those together with others, whichever is greater: who
    decides one of a callee's calls decides the others soon, and may do it alike. A decision that loses alone and was
    not tried with those that it belongs to is left out: whether it loses is not known.
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
        # Of sizes these are bytes, whose sums are exact in any order; problems with scores have no shares.
        sum(share.error for share in shares),
        sum(share.attributed for share in shares),
        sum(share.compile_s for share in shares),
        sum(share.compiles for share in shares),
    )


def _means(gain: NDArray[np.float64], of: NDArray[np.intp], count: int) -> NDArray[np.float64]:
    """float64 [count]: mean of the gains of each, added in their order; NaN where there is none."""
    number = np.bincount(of, minlength=count)
    return np.where(number > 0, np.bincount(of, gain, count) / np.maximum(number, 1), np.nan)


@dataclass(frozen=True)
class MeasureModule:
    """Measures flips of one module at a time; may be pickled and called in any thread or process.

    Attributes:
        features, buckets: of the policy.
        flip_compiles: compiles with flips for each module, at most; of problems with scores the flips of a function.
        seed: of the choice of flips, with the module's name.
        objects: project -> function -> number of the project's objects that define it, see `measure_flips`.
    """

    compiler: Compiler
    features: tuple[FeatureSpec, ...]
    buckets: Mapping[str, NDArray[np.float64]]
    flip_compiles: int
    seed: int
    objects: Mapping[str, Mapping[str, int]]

    def __call__(self, request: FlipRequest) -> FlipShare:
        """Measure flips of the module of `request`, whose advisor is the base's.

        Raises:
            CompileError, UserError: as Compiler does.
        """
        problem = problems.get(self.compiler.problem)
        first = self.compiler(request)
        base = first.samples[0]
        outcome = OBJECTIVES[problem.objective].outcome(base)
        rows = None
        if base.log is not None and base.log.decisions:
            columns = log_columns(base)
            logits = finite_logits(columns[problem.policy.logits].reshape(-1, problem.policy.num_actions))
            measure = self._flip_sizes if problem.objective == "size" else self._flip_scores
            rows = measure(request, base, columns[problem.policy.decision].reshape(-1), logits)
        if rows is None:
            none = (np.zeros(0, np.int64),) * 4
            nothing = self._no_flips()
            return FlipShare(first.module_name, request.share, outcome, nothing, *none, 0, 0, first.compile_s, 1)
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
        """Flip sets of inlining decisions, each set in a compile of its own."""
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
        """Flips of evictions, all in one compile that forks at each: a function's score is nobody else's."""
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
    """Measurements of either problem: rows of the base's log, what was tried, what it saved, and what it cost."""

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
