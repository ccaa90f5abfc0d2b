"""TFRecord files of ml-compiler-opt become traces.

ml_compiler_opt.tfrecord has two modules of Abseil, whose records google/ml-compiler-opt's generate_default_trace.py
(d57d79b) wrote with our training clang.
"""

from __future__ import annotations

import gzip
import io
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.formats.trace import ModuleTrace, TraceWriter, load_trace, read_columns, read_modules
from components.platform.errors import UserError
from components.platform.storage.publish import publish
from components.trace.config import TFRECORD_FILE
from components.trace.tfrecord import _masked_crc32c, export_tfrecord, read_record, sequence_example, write_record
from tests.attack.mutations import limits, read_mutations

pytestmark = pytest.mark.tf

THEIRS = Path(__file__).parent / "ml_compiler_opt.tfrecord"


def import_records(files: Path | list[Path], output: Path, problem: str = "inlining") -> tuple[int, int]:
    from components.trace.import_tfrecord import import_tfrecord

    return import_tfrecord(files if isinstance(files, list) else [files], problem, output)


def write_records(path: Path, *records: Mapping[str, Any] | bytes) -> Path:
    stream = io.BytesIO()
    for record in records:
        write_record(stream, record if isinstance(record, bytes) else sequence_example(record))
    path.write_bytes(stream.getvalue())
    return path


def record(decisions: int = 3, **others: Any) -> dict[str, Any]:
    return {
        "callee_users": np.arange(decisions),
        "inlining_default": np.arange(decisions) % 2,
        "inlining_decision": np.zeros(decisions, int),
        "reward": np.zeros(decisions, np.float32),
        **others,
    }


def test_records_that_ml_compiler_opt_wrote_are_a_trace(tmp_path: Path) -> None:
    assert import_records([THEIRS, THEIRS], tmp_path / "trace") == (4, 26)
    trace = load_trace(tmp_path / "trace")
    names = {spec.name for spec in trace.features}
    assert {"callee_users", "cost_estimate", "node_count"} <= names and not names & {"reward", "inlining_default"}
    assert all(spec.dtype == "int64" and spec.shape == (1,) for spec in trace.features)
    columns = read_columns(tmp_path / "trace", ["module", "step", "action", "callee_users", "reward"])
    assert columns["step"].tolist() == [*range(6), *range(7)] * 2
    assert sorted({*columns["module"]}) == ["ml_compiler_opt/000000", "ml_compiler_opt/000001"]
    assert {*columns["action"].tolist()} <= {0, 1} and (columns["callee_users"] > 0).all()
    assert read_modules(tmp_path / "trace")["decisions"].tolist() == [6, 7, 6, 7]


def test_heuristics_decision_is_what_is_learned(tmp_path: Path) -> None:
    """A trace of a policy has its decisions next to the heuristic's."""
    import_records(write_records(tmp_path / "a", record()), tmp_path / "trace")
    assert read_columns(tmp_path / "trace", ["action"])["action"].tolist() == [0, 1, 0]


def test_exported_trace_of_register_allocation_comes_back(tmp_path: Path) -> None:
    problem = problems.get("regalloc")
    features = (FeatureSpec("mask", "int64", (1, 4)), FeatureSpec("progress", "float32", (1,)))
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "mask": rng.integers(0, 2, (5, 1, 4)),
        "progress": rng.random((5, 1)).astype(np.float32),
    }
    action = rng.integers(0, 4, 5)
    with publish(tmp_path / "trace", "trace") as partial:
        writer = TraceWriter(partial, "regalloc", problem.policy.decision, features)
        module = ModuleTrace(
            "m", None, 0.0, ["f", "g"], np.array([0, 0, 0, 1, 1]), np.arange(5), [], None, None, columns, action
        )
        writer.add(module)
        writer.close("", "")
    export_tfrecord(tmp_path / "trace", tmp_path / "records")
    assert import_records(tmp_path / "records" / TFRECORD_FILE, tmp_path / "back", "regalloc") == (2, 5)
    assert load_trace(tmp_path / "back").features == features
    back = read_columns(tmp_path / "back", ["mask", "progress", "action"])
    assert (back["mask"] == columns["mask"]).all() and (back["progress"].ravel() == columns["progress"].ravel()).all()
    assert back["action"].tolist() == action.tolist()


def test_files_of_one_name_have_modules_of_their_own(tmp_path: Path) -> None:
    files = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        files.append(write_records(tmp_path / folder / "trace.tfrecord", record()))
    import_records(files, tmp_path / "trace")
    assert read_modules(tmp_path / "trace")["module"].tolist() == ["trace-0/000000", "trace-1/000000"]


def test_compressed_records_are_read(tmp_path: Path) -> None:
    compressed = tmp_path / "compressed.tfrecord"
    compressed.write_bytes(gzip.compress(THEIRS.read_bytes()))
    assert import_records(compressed, tmp_path / "trace") == import_records(THEIRS, tmp_path / "other") == (2, 13)
    columns = [read_columns(tmp_path / name, ["action"])["action"].tolist() for name in ("trace", "other")]
    assert columns[0] == columns[1]
    compressed.write_bytes(compressed.read_bytes()[:-400])
    with pytest.raises(UserError, match=r"compressed.tfrecord is "):
        import_records(compressed, tmp_path / "trace")


def test_empty_records_are_skipped(tmp_path: Path) -> None:
    import tensorflow as tf

    example = tf.train.SequenceExample()
    example.feature_lists.feature_list["inlining_decision"].SetInParent()
    without = example.SerializeToString()
    assert import_records(write_records(tmp_path / "b", without, record()), tmp_path / "trace") == (1, 3)
    assert import_records(write_records(tmp_path / "a", b"", record(), b""), tmp_path / "trace") == (1, 3)


@pytest.mark.parametrize(
    ("records", "named"),
    [
        ((), "has no decision"),
        ((b"",), "has no decision"),
        ((record(module=np.arange(3)),), "the list 'module', which is no feature"),
        ((record() | {"../../PWN": np.arange(3)},), "which is no feature"),
        ((record(empty=np.zeros((3, 0), int)),), "which is no feature"),
        ((record(inlining_default=np.array([0, 7, 1])),), "inlining_default that is not from 0 to 1"),
        ((b"\xff\xff",), "record 0 is no tf.train.SequenceExample"),
        (({"callee_users": np.arange(2)},), "record 0 has no inlining_decision, so it is no trace of inlining"),
        ((record(), record(callee_users=np.zeros(3, np.float32))), "record 1 is no record of this trace"),
        ((record(), {key: value for key, value in record().items() if key != "callee_users"}), "record 1 is no record"),
        ((record(callee_users=np.arange(2)),), "features of more or of less decisions"),
        ((record(), record(callee_users=np.zeros((3, 2), int))), "record 1 is no record of this trace"),
    ],
)
def test_other_records_are_refused(tmp_path: Path, records: tuple[Any, ...], named: str) -> None:
    with pytest.raises(UserError) as error:
        import_records(write_records(tmp_path / "a", *records), tmp_path / "trace")
    assert named in error.value.problem and error.value.remedy and "{{" not in error.value.problem
    assert not (tmp_path / "trace").exists()


def test_damaged_file_is_refused(tmp_path: Path) -> None:
    file = write_records(tmp_path / "a", record(), record())
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(UserError, match=r"is damaged at record 1: .*truncated"):
        import_records(file, tmp_path / "trace")
    file.write_text("no record" * 10)
    with pytest.raises(UserError, match="is no TFRecord"):
        import_records(file, tmp_path / "trace")
    with pytest.raises(UserError, match="there is no file"):
        import_records([file, tmp_path / "b"], tmp_path / "trace")


@pytest.mark.parametrize(
    ("size", "named"), [(1 << 62, "a protocol buffer has at most"), ((1 << 31) - 1, "truncated: 2147483636 bytes")]
)
def test_record_that_declares_more_than_the_file_has_takes_no_memory(tmp_path: Path, size: int, named: str) -> None:
    length = struct.pack("<Q", size)
    (tmp_path / "a").write_bytes(length + _masked_crc32c(length) + b"elevenbytes")
    with limits() as start:
        start()
        with pytest.raises(UserError, match=f"damaged at its beginning: .*{named}"):
            import_records(tmp_path / "a", tmp_path / "trace")


def test_steps_without_values_take_no_memory(tmp_path: Path) -> None:
    """The first record has a feature of many values, and another one of many steps without any."""
    wide = record(1, callee_users=np.zeros((1, 20_000), int))
    import tensorflow as tf

    example = tf.train.SequenceExample.FromString(sequence_example(wide))
    feature = example.feature_lists.feature_list["callee_users"].feature
    for _ in range(20_000):
        feature.add()
    with limits() as start, pytest.raises(UserError, match="record 0 is no record of this trace: it has too few"):
        start()
        import_records(write_records(tmp_path / "a", example.SerializeToString()), tmp_path / "trace")


@pytest.mark.attack
def test_mutated_records_are_an_error_or_a_trace(tmp_path: Path) -> None:
    whole = THEIRS.read_bytes()
    stream = io.BytesIO(whole)
    records = list(iter(lambda: read_record(stream), None))
    path = tmp_path / "a"

    def read_file(content: bytes) -> None:
        shutil.rmtree(tmp_path / "trace", ignore_errors=True)
        # Most mutations of a whole file are found by its checksums.
        if content[:2] == whole[:2]:
            path.write_bytes(content)
        else:
            write_records(path, content, *records[:1])
        import_records(path, tmp_path / "trace")

    read_file(records[0])
    read_mutations(read_file, [*records, *records, whole, gzip.compress(whole)], 250, (UserError,))
