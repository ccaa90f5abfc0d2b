"""Writes a trace in the form that google/ml-compiler-opt's own tools read.

One tf.train.SequenceExample per module (and per context, where the problem has several), with a feature list for each
feature of the compiler, for the heuristic's decision under its names (what was done and, where LLVM logs that, what the
heuristic would do; the same here, for the heuristic decided) and for the reward, a step per decision.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from components import problems
from components.console import Progress
from components.formats.trace import load_trace, read_columns
from components.storage.publish import publish
from components.trace.tfrecord import sequence_example, write_record

FILE_NAME = "trace.tfrecord"


def export_tfrecord(trace_directory: Path, output: Path) -> int:
    """Makes `output`, an artifact with one TFRecord file, and returns the number of records.

    Modules without decisions have no record: a sequence without steps is nothing to learn from.
    """
    trace = load_trace(trace_directory)
    names = [spec.name for spec in trace.features]
    columns = read_columns(trace_directory, ["module", "context", *names, "action", "reward"])
    module, context = columns.pop("module"), columns.pop("context")
    action, reward = columns.pop("action"), columns.pop("reward")
    problem = problems.get(trace.problem)
    decided = [name for name in (problem.default_decision, problem.decision) if name is not None]
    columns |= {name: action for name in decided} | {"reward": reward}
    changes = np.flatnonzero((module[1:] != module[:-1]) | (context[1:] != context[:-1])) + 1
    bounds = [0, *changes.tolist(), len(module)] if len(module) else []
    sequences = max(0, len(bounds) - 1)
    with (
        publish(output) as directory,
        open(directory / FILE_NAME, "wb") as stream,
        Progress("exporting sequences", sequences) as progress,
    ):
        for begin, end in pairwise(bounds):
            write_record(stream, sequence_example({name: column[begin:end] for name, column in columns.items()}))
            progress.advance()
    return sequences
