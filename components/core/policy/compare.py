"""Checks that all forms of a policy take the same decisions, on decisions that a compiler has recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core.console import UserError
from components.core.formats.trace import load_trace, read_columns
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.feature_encoding import num_elements
from components.core.policy.native_policy import NativePolicy

TIE_TOLERANCE = 1e-5
"""Forms may differ where the two greatest logits differ by less, times the greatest |logit| if that is above 1.

float32 sums of the same hundred terms in another order differ by about a tenth of it.
"""

_TABLE_BYTES = 1 << 28
"""Size of the table in which distinct decisions are searched; an inliner's whole trace fits."""


@dataclass(frozen=True)
class Agreement:
    """Agreement of one form with the reference on N decisions.

    differences: indices of the decisions on which they differ, without ties; ties: indices of those on which they
    differ and both actions are right (see TIE_TOLERANCE). max_error: the greatest difference of a logit.
    """

    form: str
    decisions: int
    differences: NDArray[np.intp]
    ties: NDArray[np.intp]
    max_error: float


def compare(directory: Path, trace: Path, limit: int = 2000, seed: int = 0) -> list[Agreement]:
    """Compare the generated C++, the SavedModel and the TensorFlow Lite model with NumPy, on recorded decisions.

    Args:
        limit: maximum number of decisions, distinct ones, drawn with `seed` from the trace.

    UserError if a form is missing or damaged, or if the trace lacks a feature or is of another problem.
    """
    policy = read_dense(directory)
    columns = sample_decisions(trace, policy, limit, seed)
    native = NativePolicy(directory)
    if native.features != policy.features:
        raise UserError(f"{directory}: policy.so and weights.npz are of different policies", "export the policy again")
    reference = policy.logits(columns)
    agreements = [compare_to_reference("generated C++", reference, native.logits(columns))]

    # TensorFlow takes seconds to import; the cheap checks come first.
    from components.core.policy.saved_model import saved_model_runner, tflite_runner

    for form, runner in (("SavedModel", saved_model_runner), ("TensorFlow Lite", tflite_runner)):
        decisions, logits = runner(directory, policy)(columns)
        agreements.append(compare_to_reference(form, reference, logits, decisions))
    return agreements


def sample_decisions(trace: Path, policy: DensePolicy, limit: int, seed: int) -> dict[str, NDArray[np.generic]]:
    """Return the columns [n] of at most `limit` distinct decisions of a trace."""
    metadata = load_trace(trace)
    if metadata.problem != policy.problem:
        problem = f"{trace} is a trace of {metadata.problem}, but the policy is for {policy.problem}"
        raise UserError(problem, "use a trace of the policy's problem")
    if not metadata.decisions:
        raise UserError(f"{trace} has no decisions", "use a trace of modules that have decisions of this problem")
    columns = read_columns(trace, [f.name for f in policy.features])
    rows = max(limit, _TABLE_BYTES // (8 * sum(map(num_elements, policy.features))))
    parts = [columns[f.name][:rows].reshape(-1, num_elements(f)).astype(np.float64) for f in policy.features]
    distinct = np.unique(np.concatenate(parts, axis=1), axis=0, return_index=True)[1]
    chosen = np.random.default_rng(seed).permutation(distinct)[:limit]
    shapes = {f.name: () if num_elements(f) == 1 else f.shape for f in policy.features}
    return {name: columns[name][chosen].reshape(-1, *shape) for name, shape in shapes.items()}


def compare_to_reference(
    form: str,
    reference: NDArray[np.float32],
    logits: NDArray[np.float32],
    decisions: NDArray[np.int64] | None = None,
) -> Agreement:
    """Compare logits [N, A], and decisions [N] if the form computes these itself, with the reference [N, A]."""
    actions = logits.argmax(axis=1) if decisions is None else decisions
    ordered = np.sort(reference, axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    tied = margin < TIE_TOLERANCE * np.maximum(1.0, np.where(np.isneginf(reference), 0, np.abs(reference)).max(axis=1))
    differ = actions != reference.argmax(axis=1)
    equal = logits == reference  # includes -inf, the logit of actions that a mask excludes
    return Agreement(
        form,
        len(reference),
        np.flatnonzero(differ & ~tied),
        np.flatnonzero(differ & tied),
        float(np.abs(np.subtract(logits, reference, where=~equal, out=np.zeros_like(reference))).max()),
    )
