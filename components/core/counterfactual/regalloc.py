"""Exact credit for register allocation: what taking another action in a decision does to the score of its function.

A decision of the register allocator changes the score of its own function only. The worth of a flip, which is to take
another action in one decision, is what its function's score changes by,

    worth = log(score of the base + FLOOR) - log(score with the flip + FLOOR)

positive if the flip is better. It is exact, and includes what the base policy decides differently behind the flip. The
base's own action has the worth 0.

Flips are measured in one compile that forks at each of them (`Request.flips`, some milliseconds a flip); or in several,
with one flip in each function of a module (`Request.forced`), which comes to the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from components.core.compiler.compile import CompileError, Sample
from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.training_log import Context, TrainingLog
from components.core.objectives.geometric_mean import log_scores
from components.core.policy.observation import finite_logits
from components.core.problems.regalloc import REGALLOC

UNIFORM_SHARE = 0.2
"""Share of the uniform distribution over a function's alternatives in the one that its flips are drawn from; the rest
is in proportion to the base policy's probabilities."""

_TINY = 1e-30  # a policy may be so sure that all alternatives have the probability 0


@dataclass(frozen=True)
class Flips:
    """M flips of decisions of a module's base compile, sorted by function, in each the most wanted first.

    Attributes:
        module: name of the module.
        function: int64 [M], index of `names`.
        row: int64 [M], the decision: a row of the log's columns, all contexts one after the other.
        ordinal: int64 [M], the same within its function.
        action: int64 [M], what is tried in place of the base's action; the mask allows it.
        names: of all functions with decisions.
    """

    module: str
    function: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    ordinal: npt.NDArray[np.int64]
    action: npt.NDArray[np.int64]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.row)

    def decisions(self) -> ForcedDecisions:
        """Return all of them, for one compile that measures each alone: `Request.flips`."""
        return self._decisions(np.arange(len(self)))

    def compiles(self) -> tuple[ForcedDecisions, ...]:
        """Return them with one of each function at most, for as many compiles as it takes: `Request.forced`."""
        compile_of = self._compile_of()
        return tuple(self._decisions(np.flatnonzero(compile_of == i)) for i in range(compile_of.max(initial=-1) + 1))

    def scores(self, samples: Sequence[Sample]) -> npt.NDArray[np.float32]:
        """Return float32 [M], the scores in the samples of `compiles()`, as `Sample.flip_scores` has those of
        `decisions()`; NaN for what a sample does not have."""
        flips = zip(self._compile_of().tolist(), self.function.tolist(), strict=True)
        found = [(samples[i].scores or {}).get(self.names[function], np.nan) for i, function in flips]
        return np.array(found, np.float32)

    def _compile_of(self) -> npt.NDArray[np.int64]:
        """int64 [M]: how many-th flip of its function each is."""
        return np.arange(len(self)) - np.searchsorted(self.function, self.function)

    def _decisions(self, flips: npt.NDArray[np.intp]) -> ForcedDecisions:
        used, name = np.unique(self.function[flips], return_inverse=True)
        columns = (name, np.full(len(flips), -1), self.ordinal[flips], self.action[flips])
        return ForcedDecisions(tuple(self.names[i] for i in used.tolist()), np.stack(columns, 1).astype(np.int32))


@dataclass(frozen=True)
class MeasuredFlips:
    """What M flips of one module are worth; see Flips for `row` and `action`.

    Attributes:
        row: int64 [M].
        action: int64 [M].
        worth: float64 [M], see the module's docstring.
    """

    row: npt.NDArray[np.int64]
    action: npt.NDArray[np.int64]
    worth: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.row)


def choose_flips(module: str, log: TrainingLog, per_function: int, seed: int) -> Flips:
    """Return up to `per_function` flips of each function of a module.

    A function with fewer alternatives has all of them tried. From one with more they are drawn without replacement, by
    the base policy's probability of the action: what it finds probable, and where it is unsure. Without logits, which
    are a policy's, all are equally probable.

    Args:
        log: of the base compile.
        seed: with the same one the same flips are chosen.
    """
    rng = np.random.default_rng([seed, _hash(module)])
    empty = np.empty(0, np.int64)
    parts = [(empty, empty, empty, empty)]
    first_row = 0
    for function, context in enumerate(log.contexts):
        ordinal, action, weight = _alternatives(context)
        # Weights and this noise, the largest first: a draw without replacement.
        noisy = np.log(weight) + rng.gumbel(size=len(weight))
        order = np.argsort(-noisy, kind="stable")[:per_function]
        rows = first_row + ordinal[order]
        parts.append((np.full_like(order, function), rows, ordinal[order], action[order]))
        first_row += len(context)
    functions, row, ordinal, action = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Flips(module, functions, row, ordinal, action, tuple(context.name for context in log.contexts))


def measure_flips(flips: Flips, base: Sample, scores: npt.NDArray[np.float32]) -> MeasuredFlips:
    """Return what flips are worth.

    Args:
        base: the compile that the flips were chosen from.
        scores: float32 [M], of their functions with each flip.

    Raises:
        CompileError: a decision or a function of the base did not occur again, so what was compiled is not the base.
    """
    missing = sorted({flips.names[i] for i in flips.function[np.isnan(scores)].tolist()})
    if missing or base.scores is None:
        raise CompileError(
            flips.module, "log", f"flips in {', '.join(missing[:3])} did not occur; is the base another?"
        )
    before = log_scores([base.scores[name] for name in flips.names])
    return MeasuredFlips(flips.row, flips.action, before[flips.function] - log_scores(scores))


def _alternatives(
    context: Context,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the alternatives of a function's N decisions.

    Returns:
        ordinal and action, int64 [C] each, and their weights, float64 [C], all greater than 0.
    """
    taken = context.columns[REGALLOC.policy.decision].reshape(-1).astype(np.int64)
    allowed = context.columns[str(REGALLOC.policy.mask)].reshape(len(taken), REGALLOC.policy.num_actions) != 0
    allowed[np.arange(len(taken)), taken] = False
    ordinal, action = np.nonzero(allowed)
    weights = np.full(len(action), 1 / max(1, len(action)))
    if REGALLOC.policy.logits in context.columns:
        logits = finite_logits(context.columns[REGALLOC.policy.logits]).reshape(allowed.shape).astype(np.float64)
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        probable = (exponentials / exponentials.sum(axis=1, keepdims=True))[allowed] + _TINY
        weights = UNIFORM_SHARE * weights + (1 - UNIFORM_SHARE) * probable / probable.sum()
    return ordinal.astype(np.int64), action.astype(np.int64), weights


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
