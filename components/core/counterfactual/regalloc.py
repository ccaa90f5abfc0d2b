"""Exact credit of register allocation decisions: the change of a function's score when one decision is flipped.

A decision of the register allocator changes only the score of its own function. A flip takes another action in one
decision and saves

    log(score of the base + FLOOR) - log(score with the flip + FLOOR)

which is positive if the flip is better. It is exact and includes what the base policy decides differently after the
flip. The base's own action saves 0.

Flips are measured in one compile that forks at each of them (`Request.flips`, some milliseconds per flip).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from components.core.compiler.compile import CompileError
from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.logs.training_log import Context, TrainingLog
from components.core.compiler.objects.function_sizes import digest64
from components.core.compiler.sample import Sample
from components.core.counterfactual.flips import Flip, FlipPlan, FlipSavings
from components.core.objectives.geometric_mean import log_scores
from components.core.policy.tf.observation import finite_logits
from components.core.problems.regalloc import REGALLOC

UNIFORM_FRACTION = 0.2
"""Flips of a function are drawn from a mixture: this part of it is the uniform distribution over its alternatives, the
rest is in proportion to the base policy's probabilities."""

_TINY = 1e-30  # all alternatives of a confident policy may have the probability 0


def plan_flips(module: str, log: TrainingLog, per_function: int, seed: int) -> FlipPlan:
    """Choose up to `per_function` flips of each function of a module, measured in one compile.

    If a function has fewer alternatives, all of them are chosen. Otherwise they are drawn without replacement, by the
    base policy's probability of the action, which prefers likely actions and decisions that it is unsure of. In a log
    without a policy's logits, all alternatives are equally likely.

    Returns:
        The flips sorted by function, within each the most important first.
    """
    random = np.random.default_rng([seed, digest64(module.encode("utf-8", "surrogateescape"))])
    flips: list[Flip] = []
    rows: list[tuple[int, int, int, int]] = []
    names: list[str] = []
    first_row = 0
    for function, context in enumerate(log.contexts):
        ordinal, action, weight = _list_alternatives(context)
        # The Gumbel-top-k trick: a draw without replacement.
        noisy = np.log(weight) + random.gumbel(size=len(weight))
        changes = frozenset({function})
        for i in np.argsort(-noisy, kind="stable")[:per_function].tolist():
            flips.append(Flip(np.array([first_row + ordinal[i]], np.intp), int(action[i]), changes))
            rows.append((len(names), -1, int(ordinal[i]), int(action[i])))
        if len(ordinal):
            names.append(context.name)
        first_row += len(context)
    forced = (ForcedDecisions(tuple(names), np.array(rows, np.int32)),) if flips else ()
    every = (np.arange(len(flips)),) if flips else ()
    return FlipPlan(tuple(flips), np.ones(first_row, np.int64), every, forced, range(len(forced)))


def attribute_savings(module: str, base: Sample, plan: FlipPlan, scores: npt.NDArray[np.float32]) -> FlipSavings:
    """Return what the flips of a plan save.

    Args:
        module: name of the module, for messages.
        base: the compile that the flips were chosen from.
        scores: float32 [flips], score of the flip's function with each flip, see `Sample.flip_scores`.

    Raises:
        CompileError: a decision or a function of the base did not occur again: the compiles differ in more than flips.
    """
    assert base.log is not None
    names = [context.name for context in base.log.contexts]
    functions = [function for flip in plan.flips for function in flip.changes]
    missing = sorted({names[functions[i]] for i in np.flatnonzero(np.isnan(scores)).tolist()})
    if missing or base.scores is None:
        raise CompileError(
            module, "log", f"flips in {', '.join(missing[:3])} did not occur; was the base another compile?"
        )
    saved = log_scores([base.scores[name] for name in names])[functions] - log_scores(scores)
    alone = np.ones(len(saved), np.int64)
    return FlipSavings(
        flip=np.arange(len(saved)),
        flip_set=np.zeros(len(saved), np.int64),
        decision=np.array([flip.decisions[0] for flip in plan.flips], np.intp),
        alternative=np.array([flip.alternative for flip in plan.flips], np.int64),
        together=alone,
        group_size=alone,
        saved=saved,
        error=0.0,
        attributed=float(np.abs(saved).sum()),
    )


def _list_alternatives(
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
        weights = UNIFORM_FRACTION * weights + (1 - UNIFORM_FRACTION) * probable / probable.sum()
    return ordinal.astype(np.int64), action.astype(np.int64), weights
