"""Converts TFRecord files of google/ml-compiler-opt's tools to a trace.

`compiler_opt/tools/generate_default_trace.py` writes a tf.train.SequenceExample for each module, or for register
allocation for each function, with one step for each decision. It has a feature list for each feature that the compiler
logs, for the decision, for inlining also for the heuristic's (`inlining_default`), and for the reward. It does not name
the module, so modules are called FILE/NUMBER here.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.formats.trace import REPORT, ModuleTrace, TraceWriter
from components.core.problems import Problem
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.storage.publish import publish
from components.platform.storage.uri import display_path
from components.trace.tfrecord import read_record

Array = npt.NDArray[Any]

_REWARD = "reward"
_NAME = re.compile(r"\w+", re.ASCII)
_COLUMNS = {"module", "context", "caller", "callee", "step", "action"}
"""Columns that a trace has besides the features."""
_KINDS = {"int64_list": "int64", "float_list": "float32"}
_GZIP = b"\x1f\x8b"
"""The first bytes of a file that tf.io.TFRecordOptions(compression_type="GZIP") writes."""
_REMEDY = "pass what ml-compiler-opt's generate_default_trace.py or `mlgo trace export` wrote"


@dataclass(frozen=True)
class _Layout:
    """What every record of a trace has.

    Attributes:
        features: of the compiler, without decisions, logits and the reward; by name.
        action: name of the list with the heuristic's decision.
    """

    features: tuple[FeatureSpec, ...]
    action: str


def import_tfrecord(files: Sequence[Path], problem_name: str, output: Path) -> tuple[int, int]:
    """Write the trace artifact `output`, and return the numbers of its modules and decisions.

    Raises:
        UserError: a file is missing, is damaged or is no TFRecord, a record is not a trace of the problem, or records
            have different features.
    """
    problem = problems.get(problem_name)
    for file in files:
        if not file.is_file():
            raise UserError(f"there is no file {display_path(file)}", _REMEDY)
    stems = Counter(file.stem for file in {*files})
    # A module's name must be that of one record.
    names = {file: file.stem if stems[file.stem] == 1 else f"{file.stem}-{i}" for i, file in enumerate(files)}
    layout: _Layout | None = None
    modules = 0
    with publish(output, "trace") as directory, Progress("importing records", len(files)) as progress:
        writer = None
        for file in files:
            for number, record in _records(file):
                place = f"{display_path(file)}: record {number}"
                layout = layout or _read_layout(record, problem, place)
                if layout is None:
                    continue  # no decisions, so it does not tell the features
                if writer is None:
                    writer = TraceWriter(directory, problem_name, problem.policy.decision, layout.features)
                columns = _parse(record, layout, problem, place)
                writer.add(_module(f"{names[file]}/{number:06}", columns, layout))
                modules += 1
            progress.advance()
        if writer is None:
            raise UserError(f"{', '.join(display_path(file) for file in files)} has no decision", _REMEDY)
        writer.close(corpus="", toolchain="")
        (directory / REPORT).write_text('{"quarantined": []}\n', encoding="utf-8")
    return modules, writer.decisions


def _records(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a file that are not empty, with their numbers from 0.

    TensorFlow's reader allocates what a record declares to have before it reads it, and ends the process if it cannot.
    """
    with file.open("rb") as stream:
        is_compressed = stream.read(len(_GZIP)) == _GZIP
    number = 0
    with gzip.open(file) if is_compressed else file.open("rb") as content:
        while True:
            try:
                record = read_record(content)
            except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
                what = f"is damaged at record {number}" if number else "is no TFRecord, or is damaged at its beginning"
                raise UserError(f"{display_path(file)} {what}: {error}", _REMEDY) from None
            if record is None:
                return
            if record:  # ml-compiler-opt writes empty ones, too
                yield number, record
            number += 1


def _text(error: tf.errors.OpError) -> str:
    """Return TensorFlow's message without the names of its nodes."""
    return re.sub(r"\{\{.*?\}\} *", "", error.message).partition(" [Op")[0]


def _read_layout(record: bytes, problem: Problem, place: str) -> _Layout | None:
    """Return what a record has; None if it has no decisions."""
    lists = _feature_lists(record, place)
    policy = problem.policy
    decisions = [name for name in (policy.default_decision, policy.decision) if name and name in lists]
    if not decisions:
        raise UserError(
            f"{place} has no {policy.decision}, so it is no trace of {problem.name}",
            "pass --problem of the trace, or another file",
        )
    if not lists[decisions[0]].feature:
        return None
    features = []
    for name in sorted({*lists} - {*decisions, _REWARD, policy.logits}):
        steps = lists[name].feature
        kind = steps[0].WhichOneof("kind") if steps else None
        if kind not in _KINDS:
            raise UserError(f"{place} has {name}, which has neither integers nor floats", _REMEDY)
        size = len(getattr(steps[0], kind).value)
        if not _NAME.fullmatch(name) or name in _COLUMNS or not size:
            raise UserError(f"{place} has the list {name!r}, which is no feature of a compiler", _REMEDY)
        # LLVM's tensors with an element for each action have two dimensions (RegAllocEvictionAdvisor).
        shape = (1, size) if policy.mask and size > 1 else (size,)
        features.append(FeatureSpec(name, _KINDS[kind], shape))
    return _Layout(tuple(features), decisions[0])


def _feature_lists(record: bytes, place: str) -> Mapping[str, tf.train.FeatureList]:
    try:
        return tf.train.SequenceExample.FromString(record).feature_lists.feature_list
    except Exception as error:  # google.protobuf's DecodeError, which depends on its implementation
        raise UserError(f"{place} is no tf.train.SequenceExample: {error}", _REMEDY) from None


def _parse(record: bytes, layout: _Layout, problem: Problem, place: str) -> dict[str, Array]:
    """Return the features [N, *shape], the decisions [N] and the rewards [N] of a record."""
    lists = _feature_lists(record, place)
    # A value takes a byte at least. TensorFlow allocates all steps before it finds that they have fewer values.
    if sum(len(lists[spec.name].feature) * math.prod(spec.shape) for spec in layout.features) > len(record):
        raise UserError(f"{place} is no record of this trace: it has too few values", _REMEDY)
    wanted = {spec.name: tf.io.FixedLenSequenceFeature(spec.shape, spec.dtype) for spec in layout.features}
    wanted[layout.action] = tf.io.FixedLenSequenceFeature([], tf.int64)
    wanted[_REWARD] = tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True)
    try:
        _context, parsed = tf.io.parse_single_sequence_example(record, sequence_features=wanted)
    except tf.errors.InvalidArgumentError as error:
        raise UserError(f"{place} is no record of this trace: {_text(error)}", _REMEDY) from None
    columns = {name: tensor.numpy() for name, tensor in parsed.items()}
    rows = {name: len(column) for name, column in columns.items() if name != _REWARD or len(column)}
    if len(set(rows.values())) != 1:
        raise UserError(f"{place} has features of more or of less decisions than {layout.action}", _REMEDY)
    action, actions = columns[layout.action], problem.policy.num_actions
    if len(action) and not 0 <= action.min() <= action.max() < actions:
        raise UserError(f"{place} has a {layout.action} that is not from 0 to {actions - 1}", _REMEDY)
    return columns


def _module(name: str, columns: Mapping[str, Array], layout: _Layout) -> ModuleTrace:
    action = columns[layout.action]
    reward = columns[_REWARD] if len(columns[_REWARD]) else np.zeros(len(action), np.float32)
    return ModuleTrace(
        module=name,
        text_size_bytes=None,
        compile_s=0.0,
        contexts=[""],
        context=np.zeros(len(action), np.int32),
        step=np.arange(len(action), dtype=np.int32),
        names=[],
        caller=None,
        callee=None,
        columns={spec.name: columns[spec.name] for spec in layout.features},
        action=action,
        reward=reward,
    )
