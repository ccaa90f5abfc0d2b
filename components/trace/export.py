"""Converts a trace to the format of google/ml-compiler-opt's tools.

There is one tf.train.SequenceExample per module (and per context, if the problem has several), with one step per
decision. It has a feature list for each feature of the compiler, for the reward, and for the decision under each of its
names: the decision taken and, if LLVM logs it, the heuristic's decision. Both are equal here because the heuristic
decided.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from components.core import problems
from components.core.formats.trace import load_trace, read_columns
from components.platform.console import Progress
from components.platform.storage.publish import publish
from components.trace.config import TFRECORD_FILE
from components.trace.tfrecord import sequence_example, write_record


def export_tfrecord(trace_directory: Path, output: Path) -> int:
    """Write the artifact `output` with one TFRecord file, and return the number of records.

    Modules without decisions have no record: nothing can be learned from a sequence without steps.
    """
    trace = load_trace(trace_directory)
    names = [spec.name for spec in trace.features]
    columns = read_columns(trace_directory, ["module", "context", *names, "action", "reward"])
    module, context = columns.pop("module"), columns.pop("context")
    action, reward = columns.pop("action"), columns.pop("reward")
    problem = problems.get(trace.problem)
    decision_names = [name for name in (problem.policy.default_decision, problem.policy.decision) if name is not None]
    columns |= {name: action for name in decision_names} | {"reward": reward}
    changes = np.flatnonzero((module[1:] != module[:-1]) | (context[1:] != context[:-1])) + 1
    bounds = [0, *changes.tolist(), len(module)] if len(module) else []
    num_sequences = max(0, len(bounds) - 1)
    with (
        publish(output, "TFRecord trace") as directory,
        open(directory / TFRECORD_FILE, "wb") as stream,
        Progress("exporting sequences", num_sequences) as progress,
    ):
        for begin, end in pairwise(bounds):
            write_record(stream, sequence_example({name: column[begin:end] for name, column in columns.items()}))
            progress.advance()
    return num_sequences
