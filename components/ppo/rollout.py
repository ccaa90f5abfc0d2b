"""Rollouts: compiles of modules under a policy, turned into decisions with advantages."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.quarantine import Quarantine, compile_all
from components.core.formats.corpus import Module
from components.core.objectives import OBJECTIVES, Objective
from components.core.objectives.objective import Outcome
from components.core.objectives.outcomes import outcome_reduction
from components.core.policy.dense import DensePolicy
from components.core.problems import Problem
from components.platform.console import say
from components.platform.workers import WorkerPool
from components.ppo.credit.measured_flips import FlipJob, FlipResult, MeasureModule, attribution_error_percent, merge
from components.ppo.learners.replay import ReplayRows
from components.ppo.module_rollout import ModuleRollout, OutcomeOf, SampleModule

Q = TypeVar("Q", bound=Request)
M = TypeVar("M", ModuleRollout, FlipResult)

MIN_TIME_SAVING = 0.05
"""Minimum reduction of an iteration's time for dividing a module; compile times are not known more accurately."""


@dataclass(frozen=True)
class CompilePlan:
    """What an iteration compiles.

    Attributes:
        kind: "sample": each module several times under a sampled policy; "flip": once under the greedy policy, and with
            its decisions flipped; "compare": under each of several greedy policies.
        policies: a single one, or those to compare.
    """

    kind: Literal["sample", "flip", "compare"]
    policies: tuple[DensePolicy, ...]


@dataclass(frozen=True)
class Rollout:
    """What the compiles of an iteration yield.

    Attributes:
        compiles: module -> number of its compiles, in the order of the request.
        rewards: float64 [modules, samples or policies], or [modules] of the bases of flips, see `outcome_reduction`.
        sampled, flips: of each module, sampled decisions or measured flips.
        attribution_error_percent: see the function of this name; None if nothing is attributed.
    """

    compiles: Mapping[str, int]
    rewards: NDArray[np.float64]
    sampled: tuple[ModuleRollout, ...] = ()
    flips: tuple[ReplayRows, ...] = ()
    attribution_error_percent: float | None = None

    @property
    def gains(self) -> NDArray[np.float64]:
        """Advantages of sampled decisions or gains of flips, before scaling."""
        parts = [*(of_module.advantage for of_module in self.sampled), *(rows.gain for rows in self.flips)]
        return np.concatenate([np.zeros(0), *parts])


@dataclass(frozen=True)
class RolloutCollector:
    """Compiles modules on the workers; has what does not change between rollouts.

    Attributes:
        baselines: outcome of each module under the heuristic, see Objective.
        compile_s: estimated compile time of each module.
        min_completed_fraction: when this fraction of the modules is done, the others are cancelled.
        definition_counts: see MeasureModule.
    """

    compiler: Compiler
    pool: WorkerPool
    problem: Problem
    baselines: Mapping[str, Outcome]
    compile_s: Mapping[str, float]
    function_credit: bool
    module_weight: float
    min_completed_fraction: float = 1.0
    definition_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def _objective(self) -> Objective:
        return OBJECTIVES[self.problem.objective]

    def collect(
        self,
        plan: CompilePlan,
        modules: Sequence[Module],
        policies: Sequence[Path],
        samples: int,
        seed: int,
        quarantine: Quarantine,
    ) -> Rollout:
        """Compile as a learner plans.

        Args:
            policies: directories of the plan's policies.
            samples: compiles per module, as `sample` and `measure` count them.
        """
        if plan.kind == "compare":
            return self.compare(modules, policies, quarantine)
        (policy,), (dense,) = policies, plan.policies
        if plan.kind == "sample":
            return self.sample(modules, policy, dense, samples, seed, quarantine)
        results = self.measure(modules, policy, dense, samples, seed, quarantine)
        return Rollout(
            {result.module_name: result.compiles for result in results},
            np.array([self._reward(result.outcome, result.module_name) for result in results]),
            flips=tuple(result.rows for result in results),
            attribution_error_percent=None if self._objective.forks_at_flips else attribution_error_percent(results),
        )

    def sample(
        self,
        modules: Sequence[Module],
        policy: Path,
        dense: DensePolicy,
        samples: int,
        seed: int,
        quarantine: Quarantine,
    ) -> Rollout:
        """Compile each module `samples` times under the sampled policy; module i has seeds from seed + i * samples."""
        requests = [
            Request(
                module,
                Advisor("policy", policy=policy, seed=seed + i * samples, samples=samples, log=True),
                want_functions=self.function_credit and self._objective.uses_function_sizes,
            )
            for i, module in enumerate(modules)
        ]
        sample = SampleModule(self.compiler, dense.features, dense.buckets, self.function_credit, self.module_weight)
        results = self._compile_all(sample, requests, lambda _: samples, quarantine)
        sampled = tuple(of_module for (of_module,) in results)
        rewards = [[self._reward(outcome, of.module_name) for outcome in of.outcomes] for of in sampled]
        return Rollout(dict.fromkeys((of.module_name for of in sampled), samples), np.array(rewards), sampled)

    def measure(
        self,
        modules: Sequence[Module],
        policy: Path,
        dense: DensePolicy,
        flip_compiles: int,
        seed: int,
        quarantine: Quarantine,
    ) -> list[FlipResult]:
        """Compile each module under the greedy policy and `flip_compiles` times with flipped decisions.

        The compiles of a large module are divided among slots, which does not affect the results.

        Args:
            seed: determines the choice of flips.
        """
        advisor = Advisor("policy", policy=policy, log=True)
        numbers = [1] * len(modules)
        if not self._objective.forks_at_flips:
            compile_s = [self.compile_s[module.name] for module in modules]
            numbers = divide_modules(compile_s, flip_compiles, self.pool.size)
        jobs = [
            FlipJob(module, advisor, want_functions=self._objective.uses_function_sizes, part=part, parts=parts)
            for module, parts in zip(modules, numbers, strict=True)
            for part in range(parts)
        ]
        measure = MeasureModule(
            self.compiler, dense.features, dense.buckets, flip_compiles, seed, self.definition_counts
        )
        results = self._compile_all(measure, jobs, lambda job: 1 + job.flip_compiles(flip_compiles), quarantine)
        return [merge(parts) for parts in results]

    def _reward(self, outcome: Outcome, module_name: str) -> float:
        """Return the relative reduction of a module's outcome from its baseline."""
        return outcome_reduction(self._objective, [(outcome, self.baselines[module_name])])

    def _compile_all(
        self,
        compile_module: Callable[[Q], M],
        requests: Sequence[Q],
        compiles: Callable[[Q], int],
        quarantine: Quarantine,
    ) -> list[list[M]]:
        """Return the results of `compile_module` by module, in the order of the modules.

        Modules with a failed request are left out, and slow ones may be cancelled (min_completed_fraction).

        Args:
            compiles: number of compiles of a request.
        """
        parts = Counter(request.module.name for request in requests)
        results: dict[str, list[M]] = {name: [] for name in parts}
        finished: set[str] = set()
        # Longest first, so that workers finish together.
        requests = sorted(requests, key=lambda r: self.compile_s[r.module.name] * compiles(r), reverse=True)
        enough = math.ceil(self.min_completed_fraction * len(parts))
        with closing(compile_all(self.pool, compile_module, requests, quarantine)) as compiled:
            for request, result in compiled:
                name = request.module.name
                results[name].append(result)
                if len(results[name]) == parts[name]:
                    finished.add(name)
                if enough <= len(finished) < len(parts):
                    break
        self._report_dropped(list(parts), finished, quarantine)
        return [of_module for name, of_module in results.items() if name in finished]

    def _report_dropped(self, names: Sequence[str], finished: Set[str], quarantine: Quarantine) -> None:
        """Report cancelled modules: they are slow, not random, so the training is biased by them."""
        dropped = [name for name in names if name not in finished and name not in quarantine]
        if dropped:
            named = ", ".join(
                f"{name} ({self._objective.extent(self.baselines[name])}, {self.compile_s[name]:.2g} s in the trace)"
                for name in dropped
            )
            say(f"iteration ended with {len(finished)} of {len(names)} modules; cancelled: {named}")

    def greedy(
        self, modules: Sequence[Module], policy: Path | None, quarantine: Quarantine, linked: bool = False
    ) -> dict[str, Outcome]:
        """Return the outcome of each module under the greedy policy, without modules in quarantine.

        Args:
            policy: None for the heuristic.
            linked: return the bytes that a link keeps, see `OutcomeOf`.
        """
        advisor = Advisor("policy", policy=policy, log=self._objective.needs_log) if policy else Advisor("log")
        requests = [Request(module, advisor, want_functions=linked) for module in modules]
        outcome_of = OutcomeOf(self.compiler, self.definition_counts if linked else {})
        return dict(outcome for _, outcome in compile_all(self.pool, outcome_of, requests, quarantine))

    def compare(self, modules: Sequence[Module], policies: Sequence[Path], quarantine: Quarantine) -> Rollout:
        """Compile each module under each greedy policy; leave out modules that fail under one of them."""
        requests = [
            Request(module, Advisor("policy", policy=policy, log=self._objective.needs_log))
            for module in sorted(modules, key=lambda module: self.compile_s[module.name], reverse=True)
            for policy in policies
        ]
        outcomes: dict[str, dict[Path | None, Outcome]] = {}
        for request, (name, outcome) in compile_all(self.pool, OutcomeOf(self.compiler), requests, quarantine):
            outcomes.setdefault(name, {})[request.advisor.policy] = outcome
        names = tuple(module.name for module in modules if len(outcomes.get(module.name, ())) == len(policies))
        rewards = [[self._reward(outcomes[name][policy], name) for policy in policies] for name in names]
        return Rollout(dict.fromkeys(names, len(policies)), np.array(rewards).reshape(len(names), len(policies)))


def divide_modules(compile_s: Sequence[float], flip_compiles: int, slots: int) -> list[int]:
    """Return the number of jobs among which the flip compiles of each module are divided.

    Each job compiles the module's base again, so modules are divided only if that shortens the iteration by at least
    MIN_TIME_SAVING.

    Args:
        compile_s: estimated time of one compile of each module.
        flip_compiles: compiles with flips per module.
        slots: number of jobs that run at the same time.
    """
    module_s = np.asarray(compile_s, np.float64)
    compiles = np.array([1 + math.ceil(flip_compiles / parts) for parts in range(1, flip_compiles + 1)])
    job_s = np.multiply.outer(module_s, compiles)  # [modules, parts], descending
    best = np.ones(len(module_s), np.int64)
    best_s = estimate_makespan_s(job_s[:, 0], slots)
    # A lower bound of the iteration's time.
    bound_s = max(float(job_s[:, 0].sum()) / slots, float(job_s[:, -1].max(initial=0.0)))
    for factor in (1.5, 1.2, 1.0, 0.9, 0.8, 0.7, 0.6):
        longer = np.sum(job_s > factor * bound_s, axis=1)
        parts = np.minimum(1 + longer, flip_compiles)
        makespan_s = estimate_makespan_s(np.repeat(module_s * compiles[parts - 1], parts), slots)
        if makespan_s < (1 - MIN_TIME_SAVING) * best_s:
            best, best_s = parts, makespan_s
    return best.tolist()


def estimate_makespan_s(job_s: Iterable[float], slots: int) -> float:
    """Return the makespan of jobs that start when a slot becomes free, longest first."""
    free_s = [0.0] * slots
    for seconds in sorted(job_s, reverse=True):
        heapq.heapreplace(free_s, free_s[0] + seconds)
    return max(free_s)
