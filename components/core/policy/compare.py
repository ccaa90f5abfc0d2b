"""Checks that all forms of a policy take the same decisions, on decisions that a compiler has recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core.console import UserError
from components.core.formats.trace import load_trace, read_columns
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.feature_encoding import elements
from components.core.policy.native_policy import NativePolicy

TIE = 1e-5
"""Forms may differ where the two greatest logits are this close, times the greatest of them if that is above 1.

float32 sums of the same hundred terms in another order differ by about a tenth of it.
"""

_TABLE_BYTES = 1 << 28
"""Decisions are looked through for different ones as far as they fit in this: all of an inliner's trace."""


@dataclass(frozen=True)
class Agreement:
    """One form against the reference, on N decisions.

    differences: indices of decisions on which it differs although they are no ties; ties: on which it differs and
    either answer is right (see TIE). max_error: the greatest difference of a logit.
    """

    form: str
    decisions: int
    differences: NDArray[np.intp]
    ties: NDArray[np.intp]
    max_error: float


def compare(directory: Path, trace: Path, limit: int = 2000, seed: int = 0) -> list[Agreement]:
    """Runs the numpy reference, the emitted code, the SavedModel and the TensorFlow Lite model on recorded decisions.

    Args:
        limit: how many decisions, drawn with `seed` from all of the trace, each different one once.

    UserError if a form is missing or damaged, if the trace lacks a feature, or if it is of another problem.
    """
    policy = read_dense(directory)
    columns = recorded_decisions(trace, policy, limit, seed)
    emitted = NativePolicy(directory)
    if emitted.features != policy.features:
        raise UserError(f"{directory}: policy.so and weights.npz are of different policies", "export the policy again")
    reference = policy.logits(columns)
    agreements = [agree("emitted C++", reference, emitted.logits(columns))]

    # TensorFlow takes seconds to import: not before the cheap checks.
    from components.core.policy.saved_model import saved_model_runner, tflite_runner

    for form, runner in (("SavedModel", saved_model_runner), ("TensorFlow Lite", tflite_runner)):
        decisions, logits = runner(directory, policy)(columns)
        agreements.append(agree(form, reference, logits, decisions))
    return agreements


def recorded_decisions(trace: Path, policy: DensePolicy, limit: int, seed: int) -> dict[str, NDArray[np.generic]]:
    """Columns [n] of at most `limit` different decisions of a trace."""
    described = load_trace(trace)
    if described.problem != policy.problem:
        problem = f"{trace} is of {described.problem}, the policy of {policy.problem}"
        raise UserError(problem, "use a trace of the policy's problem")
    if not described.decisions:
        raise UserError(f"{trace} has no decision", "use a trace of modules in which there is something to decide")
    columns = read_columns(trace, [f.name for f in policy.features])
    rows = max(limit, _TABLE_BYTES // (8 * sum(map(elements, policy.features))))
    parts = [columns[f.name][:rows].reshape(-1, elements(f)).astype(np.float64) for f in policy.features]
    different = np.unique(np.concatenate(parts, axis=1), axis=0, return_index=True)[1]
    chosen = np.random.default_rng(seed).permutation(different)[:limit]
    shapes = {f.name: () if elements(f) == 1 else f.shape for f in policy.features}
    return {name: columns[name][chosen].reshape(-1, *shape) for name, shape in shapes.items()}


def agree(
    form: str,
    reference: NDArray[np.float32],
    logits: NDArray[np.float32],
    decisions: NDArray[np.int64] | None = None,
) -> Agreement:
    """Compares logits [N, A], and the decisions [N] that the form took by itself if it did."""
    taken = logits.argmax(axis=1) if decisions is None else decisions
    ordered = np.sort(reference, axis=1)
    gap = ordered[:, -1] - ordered[:, -2]
    close = gap < TIE * np.maximum(1.0, np.where(np.isneginf(reference), 0, np.abs(reference)).max(axis=1))
    differ = taken != reference.argmax(axis=1)
    same = logits == reference  # actions that a mask excludes, among others
    return Agreement(
        form,
        len(reference),
        np.flatnonzero(differ & ~close),
        np.flatnonzero(differ & close),
        float(np.abs(np.subtract(logits, reference, where=~same, out=np.zeros_like(reference))).max()),
    )
