"""Exact credit of register allocation decisions: the change of a function's score when one decision is flipped.

A decision of the register allocator changes only the score of its own function. A flip takes another action in one
decision; its worth is

    worth = log(score of the base + FLOOR) - log(score with the flip + FLOOR)

which is positive if the flip is better. It is exact and includes what the base policy decides differently after the
flip. The base's own action has the worth 0.

Flips are measured in one compile that forks at each of them (`Request.flips`, some milliseconds per flip), or in
several compiles with one flip in each function of the module (`Request.forced`); both give the same scores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from components.core.compiler.compile import CompileError
from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.logs.training_log import Context, TrainingLog
from components.core.compiler.sample import Sample
from components.core.objectives.geometric_mean import log_scores
from components.core.policy.tf.observation import finite_logits
from components.core.problems.regalloc import REGALLOC

UNIFORM_SHARE = 0.2
"""Flips of a function are drawn from a mixture: this share of the uniform distribution over its alternatives, the rest
in proportion to the base policy's probabilities."""

_TINY = 1e-30  # all alternatives of a confident policy may have the probability 0


@dataclass(frozen=True)
class Flips:
    """M flips of a module's base compile, sorted by function, within each the most important first.

    Attributes:
        module: name of the module.
        function: int64 [M], index of `names`.
        row: int64 [M], row of the decision in the log's columns, with all contexts concatenated.
        ordinal: int64 [M], index of the decision within its function.
        action: int64 [M], the action that replaces the base's; the mask allows it.
        names: names of all functions with decisions.
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
        """Return all flips, for one compile that measures each of them separately: `Request.flips`."""
        return self._decisions(np.arange(len(self)))

    def compiles(self) -> tuple[ForcedDecisions, ...]:
        """Return the flips by compile, at most one of each function in a compile: `Request.forced`."""
        compile_of = self._compile_of()
        return tuple(self._decisions(np.flatnonzero(compile_of == i)) for i in range(compile_of.max(initial=-1) + 1))

    def scores(self, samples: Sequence[Sample]) -> npt.NDArray[np.float32]:
        """Return the scores in the samples of `compiles()`, float32 [M], NaN if a sample lacks the function.

        `Sample.flip_scores` has the same for the compile of `decisions()`.
        """
        flips = zip(self._compile_of().tolist(), self.function.tolist(), strict=True)
        found = [(samples[i].scores or {}).get(self.names[function], np.nan) for i, function in flips]
        return np.array(found, np.float32)

    def _compile_of(self) -> npt.NDArray[np.int64]:
        """Return the index of each flip among those of its function, int64 [M]."""
        return np.arange(len(self)) - np.searchsorted(self.function, self.function)

    def _decisions(self, flips: npt.NDArray[np.intp]) -> ForcedDecisions:
        used, name = np.unique(self.function[flips], return_inverse=True)
        columns = (name, np.full(len(flips), -1), self.ordinal[flips], self.action[flips])
        return ForcedDecisions(tuple(self.names[i] for i in used.tolist()), np.stack(columns, 1).astype(np.int32))


@dataclass(frozen=True)
class MeasuredFlips:
    """Measured worths of M flips of one module; see Flips for `row` and `action`.

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

    If a function has fewer alternatives, all of them are chosen. Otherwise they are drawn without replacement, by the
    base policy's probability of the action, which prefers likely actions and decisions that it is unsure of. In a log
    without a policy's logits, all alternatives are equally likely.

    Args:
        log: log of the base compile.
        seed: determines the choice.
    """
    rng = np.random.default_rng([seed, _hash(module)])
    empty = np.empty(0, np.int64)
    parts = [(empty, empty, empty, empty)]
    first_row = 0
    for function, context in enumerate(log.contexts):
        ordinal, action, weight = _alternatives(context)
        # The Gumbel-top-k trick: a draw without replacement.
        noisy = np.log(weight) + rng.gumbel(size=len(weight))
        order = np.argsort(-noisy, kind="stable")[:per_function]
        rows = first_row + ordinal[order]
        parts.append((np.full_like(order, function), rows, ordinal[order], action[order]))
        first_row += len(context)
    functions, row, ordinal, action = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Flips(module, functions, row, ordinal, action, tuple(context.name for context in log.contexts))


def measure_flips(flips: Flips, base: Sample, scores: npt.NDArray[np.float32]) -> MeasuredFlips:
    """Return the worths of flips.

    Args:
        base: the compile that the flips were chosen from.
        scores: float32 [M], score of the flip's function with each flip.

    Raises:
        CompileError: a decision or a function of the base did not occur again: the compiles differ in more than flips.
    """
    missing = sorted({flips.names[i] for i in flips.function[np.isnan(scores)].tolist()})
    if missing or base.scores is None:
        raise CompileError(
            flips.module, "log", f"flips in {', '.join(missing[:3])} did not occur; was the base another compile?"
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
