"""One round of hill climbing on one module: measure flips, combine those that pay, keep the smallest object.

The search starts from the policy's decisions, of a program from LLVM's heuristic. A round compiles the module with the
decisions found so far (the base), then with sets of flips that do not disturb each other (core/counterfactual), and
then with all flips that save something, the best half of them, and the best quarter; of a program also with those that
may disturb each other, because most of its calls are in code that is inlined into few functions. The smallest object of
the round becomes the next base. Every result is therefore confirmed by a compile, and a round never makes a module
larger. Theodoridis, Grosser and Su ("Understanding and Exploiting Optimal Function Inlining", ASPLOS 2022) measured how
far LLVM's heuristic is from the optimum.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.forced_decisions import ForcedDecisions, Key
from components.core.compiler.sample import Sample
from components.core.counterfactual.flip_sets import estimate_uncertainty
from components.core.counterfactual.flips import Flip, FlipPlan, FlipSavings
from components.core.counterfactual.inlining import attribute_savings, force_flips, plan_flips
from components.core.formats.corpus import Module
from components.core.objectives.size import import_bytes, linked_bytes
from components.core.policy.tf.observation import finite_logits
from components.core.problems.inlining import INLINING

FRACTIONS = (1.0, 0.5, 0.25)
"""Fractions of the flips that pay, the best first, that the last compiles of a round combine."""
MIN_SAVED_BYTES = 1.0
"""Flips that save less are ignored."""


@dataclass(frozen=True)
class ClimbRequest(Request):
    """A request for a round on a module; `advisor` is that of the policy, with a log.

    A program starts from LLVM's heuristic, see `starting_advisor`; its first round also tries the policy's decisions.

    Attributes:
        changed: decisions that differ from those of the start.
        tried: calls that were flipped since the last time that all of them were to be tried.
        number: number of the round; it determines which flips are tried first.
    """

    changed: Mapping[Key, int] | None = None
    tried: frozenset[Key] = frozenset()
    number: int = 0


@dataclass(frozen=True)
class Round:
    """The result of a round.

    Attributes:
        source: the module's source file.
        size_bytes: text of the module after the round.
        base_linked_bytes, linked_bytes: the objective, see `linked_bytes`, before and after the round.
        changed, tried: see ClimbRequest.
        exhausted: no untried flip was left.
        policy_bytes, policy_linked_bytes: the same under the policy alone; 0 except in the first round.
    """

    module: str
    source: str
    size_bytes: int
    base_linked_bytes: float
    linked_bytes: float
    changed: dict[Key, int]
    tried: frozenset[Key]
    exhausted: bool
    policy_bytes: int
    policy_linked_bytes: float


@dataclass(frozen=True)
class Climb:
    """Performs rounds; may be pickled and called in any thread or process.

    Attributes:
        flip_compiles: compiles per round that measure flips.
        definition_counts: project -> function -> number of the project's objects that define it.
        jobs: samples of a program that are compiled at the same time.
    """

    compiler: Compiler
    flip_compiles: int
    seed: int
    definition_counts: Mapping[str, Mapping[str, int]]
    jobs: int = 1

    def __call__(self, request: ClimbRequest) -> Round:
        problem = problems.get(self.compiler.problem)
        counts = self.definition_counts.get(request.module.project, {})
        changed = dict(request.changed or {})
        start = starting_advisor(request.module, request.advisor)
        (base,) = self._compile(request, start, [changed])
        assert base.callsites is not None and base.log is not None
        calls = base.callsites
        size_of = partial(objective_bytes, is_program=request.module.is_program(), definition_counts=counts)
        base_linked_bytes = best_linked_bytes = size_of(base)
        best, best_changed, tried, exhausted = base, changed, set(request.tried), True
        policy_bytes, policy_linked_bytes = 0, 0.0
        first_trials: list[dict[Key, int]] = []
        if not request.number:
            under_policy = base
            if start != request.advisor:
                (under_policy,) = self._compile(request, request.advisor, [{}])
                first_trials = [list_changes(under_policy)]
            policy_bytes, policy_linked_bytes = under_policy.text_size_bytes, size_of(under_policy)
        if base.log.decisions:
            columns = _columns(base)
            action = columns[problem.policy.decision].reshape(-1).astype(np.int64)
            keys = _list_keys(base)
            pinned = changed
            if start != request.advisor:
                # The heuristic inlines the last call of a local function, so a flip would change decisions about
                # functions that it does not touch.
                pinned = dict(zip(keys, action.tolist(), strict=True))
                best_changed = changed = list_changes(base)
            random = np.random.default_rng([self.seed, request.number, zlib.crc32(request.module.name.encode())])
            uncertainty = np.zeros(len(action))
            if problem.policy.logits in columns:
                logits = columns[problem.policy.logits].reshape(-1, problem.policy.num_actions)
                uncertainty = estimate_uncertainty(finite_logits(logits))
            plan = plan_flips(
                base,
                action,
                uncertainty,
                self.flip_compiles,
                random,
                lambda flip: all(keys[i] in tried for i in flip.decisions.tolist()),
            )
            if plan.forced:
                exhausted = False
                # A set may become the next base. The base consists of decisions that differ from the start's; the sets
                # of the plan would also contain all other decisions.
                flip_sets = [[plan.flips[i] for i in flip_set.tolist()] for flip_set in plan.flip_sets]
                sets = [pinned | forced.actions() for forced in force_flips(base, action, flip_sets)]
                flipped = self._compile(request, _in_samples(start, len(sets)), sets)
                on_base = number_unreached_by_base(flipped, sets, keys)
                savings = attribute_savings(base, plan, on_base, counts)
                if start != request.advisor:
                    savings = _count_imports(savings, plan, base, flipped)
                tried |= {keys[i] for i in {*savings.decision.tolist(), *list_unreached_flips(flip_sets, on_base)}}
                paying = [_choose_paying(plan.flips, savings, overlap=False)]
                if start != request.advisor:
                    paying.append(_choose_paying(plan.flips, savings, overlap=True))
                trials = first_trials + [
                    pinned | forced.actions() for chosen in paying for forced in _combine(base, action, chosen)
                ]
                more: Sequence[Sample] = ()
                if trials:
                    more = self._compile(request, _in_samples(start, len(trials)), trials)
                for decisions, sample in zip([*sets, *trials], [*flipped, *more], strict=True):
                    if (trial_bytes := size_of(sample)) < best_linked_bytes:
                        best, best_changed, best_linked_bytes = sample, decisions, trial_bytes
        return Round(
            request.module.name,
            calls.source,
            best.text_size_bytes,
            base_linked_bytes,
            best_linked_bytes,
            best_changed,
            frozenset(tried),
            exhausted,
            policy_bytes,
            policy_linked_bytes,
        )

    def _compile(
        self, request: ClimbRequest, advisor: Advisor, decisions: Sequence[Mapping[Key, int]]
    ) -> tuple[Sample, ...]:
        forced = tuple(ForcedDecisions.of(actions) for actions in decisions)
        # Other training clangs search no programs and lack the option.
        parallel = advisor.mode == "heuristic" and self.jobs > 1
        flags = ("-mllvm", f"-mlgo-sample-jobs={self.jobs}") if parallel else ()
        compile_ = Request(request.module, advisor, want_functions=True, extra_flags=flags, forced=forced)
        return self.compiler(compile_).samples


def objective_bytes(sample: Sample, is_program: bool, definition_counts: Mapping[str, int]) -> float:
    """Return what the search minimizes: `linked_bytes`, and in a program also the bytes of its imports.

    A call that is not inlined may be all that a program needs a function of a shared library for.
    """
    assert sample.function_sizes is not None
    imports = import_bytes(sample.function_sizes.undefined) if is_program else 0
    return linked_bytes(sample, definition_counts) + imports


def _count_imports(savings: FlipSavings, plan: FlipPlan, base: Sample, flipped: Sequence[Sample]) -> FlipSavings:
    """Return savings that count the imports which a flip adds or removes: its callee."""
    calls = base.callsites
    assert calls is not None and base.function_sizes is not None
    before, saved = base.function_sizes.undefined, savings.saved.copy()
    for row, (flip, number) in enumerate(zip(savings.flip.tolist(), savings.flip_set.tolist(), strict=True)):
        sizes = flipped[number - plan.numbers.start].function_sizes
        callee = plan.flips[flip].callee
        assert sizes is not None and callee is not None
        name = {calls.names[callee]}
        added = import_bytes(name & sizes.undefined) - import_bytes(name & before)
        saved[row] -= added / savings.together[row]
    return replace(savings, saved=saved)


def starting_advisor(module: Module, policy: Advisor) -> Advisor:
    """Return the advisor whose decisions the search starts from, and who decides about calls that are not forced.

    On whole programs the policy is as often worse as better than LLVM's heuristic, so they start from the latter.
    """
    return Advisor("log") if module.is_program() else policy


def _in_samples(start: Advisor, count: int) -> Advisor:
    """Return the same advisor in `count` compiles that log nothing."""
    if start.policy is None:
        return Advisor("heuristic", samples=count)
    return Advisor("policy", policy=start.policy, samples=count)


def list_decisions(base: Sample) -> ForcedDecisions:
    """Return every decision of a compile. A plan of files has all of them, so that it does not depend on the policy."""
    return ForcedDecisions.of(_actions(base, INLINING.policy.decision))


def list_changes(base: Sample) -> dict[Key, int]:
    """Return the decisions of a compile that differ from those of LLVM's heuristic."""
    heuristic = _actions(base, str(INLINING.policy.default_decision))
    return {key: action for key, action in _actions(base, INLINING.policy.decision).items() if action != heuristic[key]}


def _actions(base: Sample, column: str) -> dict[Key, int]:
    """Return a column of a compile's log by the decisions' keys."""
    assert base.log is not None and base.callsites is not None
    if not base.log.decisions:
        return {}
    actions = _columns(base)[column].reshape(-1).astype(np.int64)
    return dict(zip(_list_keys(base), actions.tolist(), strict=True))


def _columns(base: Sample) -> dict[str, NDArray[Any]]:
    assert base.log is not None
    (columns,) = [context.columns for context in base.log.contexts if len(context)]
    return columns


def _list_keys(base: Sample) -> list[Key]:
    calls = base.callsites
    assert calls is not None
    ordinal = calls.ordinals().tolist()
    pairs = zip(calls.caller.tolist(), calls.callee.tolist(), ordinal, strict=True)
    return [(calls.names[caller], calls.names[callee], number) for caller, callee, number in pairs]


def number_unreached_by_base(
    samples: Sequence[Sample], sets: Sequence[Mapping[Key, int]], keys: Sequence[Key]
) -> list[Sample]:
    """Return the samples with `unreached` as indices of the base's decisions, whose keys are `keys`."""
    index_of = {key: i for i, key in enumerate(keys)}
    result = []
    for sample, decisions in zip(samples, sets, strict=True):
        forced = list(decisions)
        unreached = [index_of[forced[row]] for row in sample.unreached.tolist() if forced[row] in index_of]
        result.append(replace(sample, unreached=np.array(unreached, np.intp)))
    return result


def list_unreached_flips(flip_sets: Sequence[Sequence[Flip]], samples: Sequence[Sample]) -> set[int]:
    """Return the base's decisions that should have been flipped in compiles that did not reach them.

    They count as tried: another call of their flip removed the call, and would do so again.
    """
    return {
        decision
        for flips, sample in zip(flip_sets, samples, strict=True)
        for flip in flips
        for decision in np.intersect1d(flip.decisions, sample.unreached).tolist()
    }


def _choose_paying(flips: Sequence[Flip], savings: FlipSavings, overlap: bool) -> list[Flip]:
    """Return the flips that save something, those that save most first.

    Args:
        overlap: whether they may disturb each other; they flip different decisions in any case.
    """
    measurements: dict[int, list[float]] = {}
    for flip, saved in zip(savings.flip.tolist(), (savings.saved * savings.together).tolist(), strict=True):
        measurements.setdefault(flip, []).append(saved)
    saved_bytes = {flip: float(np.mean(saved)) for flip, saved in measurements.items()}
    chosen: list[Flip] = []
    busy: set[int] = set()
    for number in sorted(saved_bytes, key=lambda flip: (-saved_bytes[flip], flip)):
        if saved_bytes[number] < MIN_SAVED_BYTES:
            break
        used = frozenset(flips[number].decisions.tolist()) if overlap else flips[number].touches
        if busy.isdisjoint(used):
            busy |= used
            chosen.append(flips[number])
    return chosen


def _combine(base: Sample, action: NDArray[np.int64], paying: Sequence[Flip]) -> tuple[ForcedDecisions, ...]:
    counts = sorted({max(1, round(fraction * len(paying))) for fraction in FRACTIONS}, reverse=True) if paying else []
    return force_flips(base, action, [paying[:count] for count in counts])
