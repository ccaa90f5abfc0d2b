"""Computes a vocab from a trace."""

from __future__ import annotations

import numpy as np

from components.core import problems
from components.core.formats.trace import load_trace, read_columns
from components.core.formats.vocab import quantiles, write_vocab
from components.core.policy.tf.observation import network_features
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.storage.manifest import digest
from components.platform.storage.publish import publish
from components.vocab.config import VocabConfig


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
