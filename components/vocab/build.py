"""Computes a vocab from a trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from components.core import problems
from components.core.formats.trace import load_trace, read_columns
from components.core.formats.vocab import QUANTILES, write_vocab
from components.core.policy.tf.observation import vocab_features
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.storage.manifest import digest
from components.platform.storage.publish import publish
from components.vocab.config import VocabConfig


def build(config: VocabConfig) -> int:
    """Write the vocab artifact `config.output` and return its number of features.

    These are the features that a policy may use, without tensors, which have no quantiles.

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
    names = [spec.name for spec in vocab_features(problem, trace.features)]
    columns = read_columns(config.trace, names if problem.policy.mask is None else [*names, problem.policy.mask])
    allowed = None if problem.policy.mask is None else columns[problem.policy.mask].reshape(trace.decisions, -1) != 0
    buckets = {}
    with publish(config.output, "vocab") as directory, Progress("quantiles of features", len(names)) as progress:
        for name in names:
            values = columns[name].reshape(trace.decisions, -1)
            if allowed is not None:
                # Values of masked actions are 0 and never used.
                values = values[allowed] if values.shape == allowed.shape else values
                values = values[~np.isnan(values)]
            if not np.isfinite(values).all() or values.size == 0:
                raise UserError(f"the feature {name} of the trace in {config.trace} is not finite everywhere")
            buckets[name] = quantiles(values)
            progress.advance()
        origin = {"problem": trace.problem, "decisions": trace.decisions, "trace": digest(config.trace)}
        write_vocab(directory, buckets, origin)
    return len(names)


def quantiles(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the 1000 quantiles of all elements of `values` (any shape, at least one), float64 nondecreasing.

    The k-th, k = 0 ... 999, is the value of rank ceil(k * (N - 1) / 999) among the N sorted values, counted from 0: the
    first is the minimum, the last the maximum, and each is a value that really occurred (numpy's method "higher", but
    with ranks in integers). So the quantiles of an integer feature are integers, which for a comparison with integers
    is as good as interpolation: what is at least b is at least the next integer above b. Equal quantiles repeat, so
    that the number of quantiles that a value reaches, over 1000, estimates the distribution function.
    """
    ordered = np.sort(values, axis=None)
    steps = QUANTILES - 1
    ranks = (np.arange(QUANTILES) * (len(ordered) - 1) + steps - 1) // steps
    return ordered[ranks].astype(np.float64)
