"""One round of the search on one module: measure flips, take those that pay, keep the best that was compiled.

The search climbs from the policy's decisions. A round compiles the module with what was found so far (the base), then
with sets of flips that do not disturb each other (core/counterfactual). All flips that save something are then
taken together, half of them, and so on; the smallest object of the round is the next base. So no estimate is believed
without a compile, and a round never ends with a larger module than it began with. Theodoridis, Grosser and Su
("Understanding and Exploiting Optimal Function Inlining", ASPLOS 2022) found what LLVM's heuristic leaves to be gained.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request, Sample
from components.core.compiler.forced_decisions import ForcedDecisions, Key, ordinals
from components.core.counterfactual.flip_sets import uncertainty
from components.core.counterfactual.influence import Flip
from components.core.counterfactual.inlining import MeasuredFlips, force_flips, measure_flips, plan_flips
from components.core.policy.observation import finite_logits

SHARES = (1.0, 0.5, 0.25)
"""Of the flips that pay, the best: how many are taken together in the compiles at the end of a round."""
LEAST_BYTES = 1.0
"""A flip that saves less is left."""


@dataclass(frozen=True)
class ClimbRequest(Request):
    """A round on a module; `advisor` is that of the policy, with a log.

    Attributes:
        found: decisions that differ from the policy's.
        tried: calls that were flipped since the search last began with all of them.
        number: of the round; another one tries other flips first.
    """

    found: Mapping[Key, int] | None = None
    tried: frozenset[Key] = frozenset()
    number: int = 0


@dataclass(frozen=True)
class Round:
    """What a round found.

    Attributes:
        source: the module's source file.
        base_bytes: text of the module as the round began, size_bytes: as it ended.
        base_worth, worth: the objective, in bytes, at the beginning and at the end.
        found, tried: see ClimbRequest.
        exhausted: nothing was left to be tried.
    """

    module: str
    source: str
    base_bytes: int
    size_bytes: int
    base_worth: float
    worth: float
    found: dict[Key, int]
    tried: frozenset[Key]
    exhausted: bool


@dataclass(frozen=True)
class Climb:
    """Does rounds; may be pickled and called in any thread or process.

    Attributes:
        flip_compiles: of a round.
        objects: project -> function -> number of the project's objects that define it, see `measure_flips`.
    """

    compiler: Compiler
    flip_compiles: int
    seed: int
    objects: Mapping[str, Mapping[str, int]]

    def __call__(self, request: ClimbRequest) -> Round:
        """Do a round.

        Raises:
            CompileError, UserError: as Compiler does.
        """
        problem = problems.get(self.compiler.problem)
        objects = self.objects.get(request.module.project, {})
        found = dict(request.found or {})
        policy = request.advisor.policy
        (base,) = self._compile(request, request.advisor, [found])
        assert base.callsites is not None and base.log is not None
        calls = base.callsites
        base_worth = best_worth = worth(base, objects)
        best, kept, tried, exhausted = base, found, set(request.tried), True
        if base.log.decisions:
            (columns,) = [context.columns for context in base.log.contexts if len(context)]
            action = columns[problem.policy.decision].reshape(-1).astype(np.int64)
            keys = _keys(base)
            random = np.random.default_rng([self.seed, request.number, zlib.crc32(request.module.name.encode())])
            logits = finite_logits(columns[problem.policy.logits].reshape(-1, problem.policy.num_actions))
            plan = plan_flips(
                base,
                action,
                uncertainty(logits),
                self.flip_compiles,
                random,
                lambda flip: all(keys[i] in tried for i in flip.decisions.tolist()),
            )
            if plan.forced:
                exhausted = False
                # A set may be kept, and what is kept are decisions that differ from the policy's: not the plan's, which
                # has all others, too.
                of_sets = [[plan.flips[i] for i in flip_set.tolist()] for flip_set in plan.flip_sets]
                sets = [found | forced.actions() for forced in force_flips(base, action, of_sets)]
                flipped = self._compile(request, Advisor("policy", policy=policy, samples=len(sets)), sets)
                of_base = unreached_of_base(flipped, sets, keys)
                measured = measure_flips(base, plan, of_base, objects)
                tried |= {keys[i] for i in {*measured.decision.tolist(), *flips_unreached(of_sets, of_base)}}
                paying = _paying(plan.flips, measured)
                trials = [found | f.actions() for f in _together(base, action, paying)]
                more: Sequence[Sample] = ()
                if trials:
                    advisor = Advisor("policy", policy=policy, samples=len(trials))
                    more = self._compile(request, advisor, trials)
                for decisions, sample in zip([*sets, *trials], [*flipped, *more], strict=True):
                    if (found_worth := worth(sample, objects)) < best_worth:
                        best, kept, best_worth = sample, decisions, found_worth
        return Round(
            request.module.name,
            calls.source,
            base.text_size_bytes,
            best.text_size_bytes,
            base_worth,
            best_worth,
            kept,
            frozenset(tried),
            exhausted,
        )

    def _compile(
        self, request: ClimbRequest, advisor: Advisor, decisions: Sequence[Mapping[Key, int]]
    ) -> tuple[Sample, ...]:
        forced = tuple(ForcedDecisions.of(actions) for actions in decisions)
        return self.compiler(Request(request.module, advisor, want_functions=True, forced=forced)).samples


def worth(sample: Sample, objects: Mapping[str, int]) -> float:
    """Return the bytes of a module, a function that several objects define counted by the share that the link keeps."""
    assert sample.function_sizes is not None
    dropped = 0.0
    if objects:
        sizes = sample.function_sizes.by_name()
        dropped = sum(size * (1 - 1 / objects[name]) for name, size in sizes.items() if name in objects)
    return sample.text_size_bytes - dropped


def all_decisions(base: Sample) -> ForcedDecisions:
    """Return every decision of a compile: a plan has them all, so that it does not depend on the policy."""
    assert base.log is not None and base.callsites is not None
    if not base.log.decisions:
        return ForcedDecisions((), np.zeros((0, 4), np.int32))
    (columns,) = [context.columns for context in base.log.contexts if len(context)]
    action = columns[problems.get("inlining").policy.decision].reshape(-1).astype(np.int64)
    return ForcedDecisions.of(dict(zip(_keys(base), action.tolist(), strict=True)))


def _keys(base: Sample) -> list[Key]:
    """Of each decision."""
    calls = base.callsites
    assert calls is not None
    ordinal = ordinals(calls.caller, calls.callee).tolist()
    pairs = zip(calls.caller.tolist(), calls.callee.tolist(), ordinal, strict=True)
    return [(calls.names[caller], calls.names[callee], number) for caller, callee, number in pairs]


def unreached_of_base(
    samples: Sequence[Sample], sets: Sequence[Mapping[Key, int]], keys: Sequence[Key]
) -> list[Sample]:
    """Samples of these sets of decisions whose `unreached` are decisions of the base, which has them by `keys`."""
    places = {key: i for i, key in enumerate(keys)}
    result = []
    for sample, decisions in zip(samples, sets, strict=True):
        forced = list(decisions)
        unreached = [places[forced[row]] for row in sample.unreached.tolist() if forced[row] in places]
        result.append(replace(sample, unreached=np.array(unreached, np.intp)))
    return result


def flips_unreached(flip_sets: Sequence[Sequence[Flip]], samples: Sequence[Sample]) -> set[int]:
    """Return the base's decisions that were to be flipped in compiles that never came to them.

    They were tried as well: another call of their flip took the call away, and would do so again.
    """
    return {
        decision
        for flips, sample in zip(flip_sets, samples, strict=True)
        for flip in flips
        for decision in np.intersect1d(flip.decisions, sample.unreached).tolist()
    }


def _saved(measured: MeasuredFlips) -> dict[int, float]:
    """Flip -> bytes that it saved, mean of its measurements."""
    rows: dict[int, list[float]] = {}
    saved_bytes = measured.saved_bytes * measured.together
    for flip, saved in zip(measured.flip.tolist(), saved_bytes.tolist(), strict=True):
        rows.setdefault(flip, []).append(saved)
    return {flip: float(np.mean(saved)) for flip, saved in rows.items()}


def _paying(flips: Sequence[Flip], measured: MeasuredFlips) -> list[Flip]:
    """The flips that save something and do not touch each other, the one that saves most first."""
    total = _saved(measured)
    chosen: list[Flip] = []
    busy: set[int] = set()
    for number in sorted(total, key=lambda flip: (-total[flip], flip)):
        if total[number] < LEAST_BYTES:
            break
        if busy.isdisjoint(flips[number].touches):
            busy |= flips[number].touches
            chosen.append(flips[number])
    return chosen


def _together(base: Sample, action: NDArray[np.int64], paying: Sequence[Flip]) -> tuple[ForcedDecisions, ...]:
    counts = sorted({max(1, round(share * len(paying))) for share in SHARES}, reverse=True) if paying else []
    return force_flips(base, action, [paying[:count] for count in counts])
