"""Checks that all forms of a policy take the same decisions, on decisions that a compiler has recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core.formats.trace import load_trace, read_columns
from components.core.policy.agreement import Agreement, compare_forms, require_description
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.feature_encoding import num_elements
from components.platform.errors import UserError

_TABLE_BYTES = 1 << 28
"""Size of the table in which distinct decisions are searched; an inliner's whole trace fits."""


def compare(directory: Path, trace: Path, limit: int = 2000, seed: int = 0) -> list[Agreement]:
    """Compare the generated C++, the SavedModel and the TensorFlow Lite model with NumPy, on recorded decisions.

    Args:
        limit: maximum number of decisions, distinct ones, drawn with `seed` from the trace.

    UserError if a form is missing or damaged, or if the trace lacks a feature or is of another problem.
    """
    policy = read_dense(directory)
    require_description(directory, policy)
    columns = sample_decisions(trace, policy, limit, seed)
    return compare_forms(directory, policy, columns, ("native", "saved_model", "tflite"))


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
