"""What one module's counterfactual compiles teach, made where the module is compiled.

A module is compiled once under the greedy policy (the base), and again with sets of its decisions flipped. What goes
back to the trainer is a row for each flip that was measured: what was observed, what the base did, what was tried
instead and what that saved.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components import problems
from components.compiler.advisor import Advisor
from components.compiler.compile import Compiler, Request, Sample
from components.formats.features import FeatureSpec
from components.policy.observation import finite, observation_shape, observations
from components.ppo.credit import inlining, regalloc
from components.ppo.measures import MEASURES
from components.ppo.sample import log_columns


@dataclass(frozen=True)
class ModuleFlips:
    """The measured flips of one module.

    Attributes:
        outcome: of the base, see measures.py.
        observed: float32 [n, *S] as in policy/observation.py.
        logits: float32 [n, A] of the base's policy, finite.
        action, alternative: int64 [n], what the base did and what was tried instead.
        gain: float64 [n], by how much the objective is smaller (bytes, or log score) with the alternative.
        error, attributed: see MeasuredFlips.
        compile_s: sum over the compiles.
        compiles: how many there were, the base among them.
    """

    module_name: str
    outcome: Any
    observed: NDArray[np.float32]
    logits: NDArray[np.float32]
    action: NDArray[np.int64]
    alternative: NDArray[np.int64]
    gain: NDArray[np.float64]
    error: float
    attributed: float
    compile_s: float
    compiles: int

    def __reduce__(self) -> tuple[Any, ...]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        # Level 1: what more would save is less than its time.
        return _unpacked, (zlib.compress(pickle.dumps(values, pickle.HIGHEST_PROTOCOL), 1),)


def _unpacked(content: bytes) -> ModuleFlips:
    return ModuleFlips(**pickle.loads(zlib.decompress(content)))


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

    def __call__(self, request: Request) -> ModuleFlips:
        """Measure the module of `request`, whose advisor is the base's.

        Raises:
            CompileError, UserError: as Compiler does.
        """
        problem = problems.get(self.compiler.problem)
        first = self.compiler(request)
        base = first.samples[0]
        outcome = MEASURES[problem.measure].outcome(base)
        if base.log is None or not base.log.decisions:
            return self._nothing(first.module_name, outcome, first.compile_s)
        columns = log_columns(base)
        logits = finite(columns[problem.logits].reshape(-1, problem.num_actions))
        measure = self._flip_sizes if problem.measure == "size" else self._flip_scores
        rows = measure(request, base, columns[problem.decision].reshape(-1), logits)
        if rows is None:
            return self._nothing(first.module_name, outcome, first.compile_s)
        chosen = {name: column[rows.decision] for name, column in columns.items()}
        return ModuleFlips(
            first.module_name,
            outcome,
            observations(problem, self.features, self.buckets, chosen),
            logits[rows.decision],
            columns[problem.decision].reshape(-1)[rows.decision],
            rows.alternative,
            rows.gain,
            rows.error,
            rows.attributed,
            first.compile_s + rows.compile_s,
            1 + rows.compiles,
        )

    def _flip_sizes(
        self, request: Request, base: Sample, action: NDArray[np.int64], logits: NDArray[np.float32]
    ) -> _Rows | None:
        """Flip sets of inlining decisions, each set in a compile of its own."""
        random = np.random.default_rng([self.seed, zlib.crc32(request.module.name.encode())])
        plan = inlining.plan_flips(base, action, _uncertainty(logits), self.flip_compiles, random)
        if not plan.forced:
            return None
        advisor = Advisor("policy", policy=request.advisor.policy, samples=len(plan.forced))
        flipped = self.compiler(Request(request.module, advisor, want_functions=True, forced=plan.forced))
        found = inlining.measure_flips(base, plan, flipped.samples, self.objects.get(request.module.project))
        return _Rows(
            found.decision, 1 - action[found.decision], found.saved_bytes, found.attributed_error_bytes,
            found.attributed_bytes, flipped.compile_s, len(plan.forced),
        )  # fmt: skip

    def _flip_scores(
        self, request: Request, base: Sample, action: NDArray[np.int64], logits: NDArray[np.float32]
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
        return _Rows(found.row, found.action, found.worth, 0.0, attributed, flipped.compile_s, 1)

    def _nothing(self, name: str, outcome: Any, compile_s: float) -> ModuleFlips:
        problem = problems.get(self.compiler.problem)
        observed = np.zeros((0, *observation_shape(problem, self.features)), np.float32)
        none = np.zeros(0, np.int64)
        logits = np.zeros((0, problem.num_actions), np.float32)
        return ModuleFlips(name, outcome, observed, logits, none, none, np.zeros(0), 0.0, 0.0, compile_s, 1)


@dataclass(frozen=True)
class _Rows:
    """Measured flips of either problem: rows of the base's log, what was tried, what it saved, and what it cost."""

    decision: NDArray[np.intp]
    alternative: NDArray[np.int64]
    gain: NDArray[np.float64]
    error: float
    attributed: float
    compile_s: float
    compiles: int


def _uncertainty(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """float64 [N]: minus the distance between the two greatest logits."""
    ordered = np.sort(logits.astype(np.float64), axis=1)
    return ordered[:, -2] - ordered[:, -1]
