"""Computes a vocab from a trace, shard by shard: memory grows with the distinct values of one feature only."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from components.core import problems
from components.core.formats.trace import Trace, iterate_columns, load_trace
from components.core.formats.vocab import quantiles_of_counts, write_vocab
from components.core.policy.tf.observation import network_features
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.storage.manifest import digest
from components.platform.storage.publish import publish
from components.vocab.config import VocabConfig

Array = npt.NDArray[Any]
Counts = tuple[Array, npt.NDArray[np.int64]]
"""Distinct values [D], increasing, and how often each occurs, int64 [D]."""


def build(config: VocabConfig) -> int:
    """Write the vocab artifact `config.output` and return its number of features.

    These are all features with quantiles that the compiler logged, without tensors: ours train on fewer of them,
    ml-compiler-opt's tools on others.

    Raises:
        UserError: the trace has no decisions, or a value that is not finite.
    """
    trace = load_trace(config.trace)
    if trace.decisions == 0:
        raise UserError(
            f"the trace in {config.trace} has no decisions",
            "trace a corpus with decisions, compiled at the optimization level of the problem",
        )
    problem = problems.get(trace.problem)
    per_instruction = problem.policy.per_instruction_features
    names = [spec.name for spec in network_features(problem, trace.features) if spec.name not in per_instruction]
    buckets = {}
    with publish(config.output, "vocab") as directory, Progress("quantiles of features", len(names)) as progress:
        for name in names:
            counts = _count_values(trace, name, problem.policy.mask, config)
            if counts is None and config.sampling_rate < 1:
                raise UserError(f"--sampling-rate {config.sampling_rate}: no value of {name}", "pass a larger one")
            if counts is None or not np.isfinite(counts[0]).all():
                raise UserError(f"the feature {name} of the trace in {config.trace} is not finite everywhere")
            buckets[name] = quantiles_of_counts(*counts)
            progress.advance()
        origin = {"problem": trace.problem, "decisions": trace.decisions, "trace": digest(config.trace)}
        if config.sampling_rate < 1:
            origin |= {"sampling_rate": config.sampling_rate, "seed": config.seed}
        write_vocab(directory, buckets, origin)
    return len(names)


def _count_values(trace: Trace, name: str, mask: str | None, config: VocabConfig) -> Counts | None:
    """Return how often each value of a feature occurs, None if none is used. Holds a shard, and the distinct values."""
    rng = np.random.default_rng(config.seed)  # the same decisions for each feature
    total: Counts | None = None
    for columns in iterate_columns(trace, [name] if mask is None else [name, mask]):
        rows = len(columns[name])
        chosen = rng.random(rows) < config.sampling_rate
        values = columns[name].reshape(rows, -1)[chosen]
        if mask is not None:
            # Values of masked actions are 0 and never used.
            allowed = columns[mask].reshape(rows, -1)[chosen] != 0
            values = values[allowed] if values.shape == allowed.shape else values
            values = values[~np.isnan(values)]
        if values.size:
            counts = np.unique(values, return_counts=True)
            total = counts if total is None else _add(total, counts)
    return total


def _add(left: Counts, right: Counts) -> Counts:
    """Return the counts of both."""
    values = np.union1d(left[0], right[0])
    total = np.zeros(len(values), np.int64)
    for part, count in (left, right):
        total[np.searchsorted(values, part)] += count
    return values, total
