"""Traces of the register allocator: features with 33 elements, a context per function, scores as rewards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.formats.corpus import Corpus
from components.core.formats.trace import load_trace, read_columns, read_modules
from components.platform.errors import UserError
from components.trace.collect import collect
from components.trace.config import TFRECORD_FILE, TraceConfig
from components.trace.tfrecord import export_tfrecord
from components.vocab.build import build
from components.vocab.config import VocabConfig

pytestmark = pytest.mark.toolchain

PROBLEM = problems.get("regalloc")


@pytest.fixture(scope="module")
def trace(pressed_corpus: Corpus, training_toolchain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("trace") / "trace"
    config = TraceConfig(pressed_corpus.directory, training_toolchain, output, problem="regalloc", workers="local:2")
    assert collect(config).modules == 3
    return output


def test_trace_equals_clang_logs(trace: Path, pressed_corpus: Corpus, training_toolchain: Path) -> None:
    names = [spec.name for spec in load_trace(trace).features]
    columns = read_columns(trace, [*names, "module", "context", "step", "action", "reward"])
    compiler = Compiler(training_toolchain / "bin" / "clang", "regalloc")
    rows_seen = 0
    for module in pressed_corpus:
        (sample,) = compiler(Request(module, Advisor("log"))).samples
        assert sample.log is not None and sample.scores is not None
        for context in sample.log.contexts:
            rows = (columns["module"] == module.name) & (columns["context"] == context.name)
            assert rows.sum() == len(context) > 0
            rows_seen += len(context)
            for name in names:
                expected = context.columns[name] if name != "progress" else context.columns[name].ravel()
                np.testing.assert_array_equal(columns[name][rows], expected, err_msg=name)
            np.testing.assert_array_equal(columns["action"][rows], context.columns[PROBLEM.policy.decision].ravel())
            np.testing.assert_array_equal(columns["step"][rows], np.arange(len(context)))
            assert set(columns["reward"][rows]) == {np.float32(sample.scores[context.name])}
    assert rows_seen == len(columns["module"]) > 100
    allowed = columns["mask"].reshape(-1, PROBLEM.policy.num_actions)
    assert allowed[np.arange(rows_seen), columns["action"]].all()


def test_trace_has_no_columns_without_a_value(trace: Path) -> None:
    (shard,) = load_trace(trace).shards
    schema = pq.read_schema(shard)
    assert {"caller", "callee"}.isdisjoint(schema.names)
    assert str(schema.field("mask").type) == "fixed_size_list<element: int64>[33]"
    assert set(read_modules(trace)) == {"module", "decisions", "compile_s"}
    with pytest.raises(UserError, match="caller"):
        read_columns(trace, ["caller"])


def test_vocab_uses_only_unmasked_values(trace: Path, tmp_path: Path) -> None:
    features = load_trace(trace).features
    assert build(VocabConfig(trace, tmp_path / "vocab")) == len(features) - 1
    assert not (tmp_path / "vocab" / "mask.buckets").exists()
    columns = read_columns(trace, ["liverange_size", "mask", "progress"])
    allowed = columns["mask"] != 0
    sizes = columns["liverange_size"][allowed]
    values = np.loadtxt(tmp_path / "vocab" / "liverange_size.buckets")
    assert values[0] == sizes.min() and values[-1] == sizes.max() == 1
    assert np.median(values) == pytest.approx(np.median(sizes), rel=0.05)
    progress = np.loadtxt(tmp_path / "vocab" / "progress.buckets")
    assert (progress[0], progress[-1]) == (columns["progress"].min(), columns["progress"].max())


def test_exported_tfrecord_has_a_sequence_per_function(trace: Path, tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    columns = read_columns(trace, ["context", "module", "mask", "use_def_density", "action", "reward"])
    functions = list(dict.fromkeys(zip(columns["module"], columns["context"], strict=True)))
    assert export_tfrecord(trace, tmp_path / "out") == len(functions) >= 3
    parsed = {
        "mask": tf.io.FixedLenSequenceFeature([33], tf.int64),
        "use_def_density": tf.io.FixedLenSequenceFeature([33], tf.float32),
        PROBLEM.policy.decision: tf.io.FixedLenSequenceFeature([], tf.int64),
        "reward": tf.io.FixedLenSequenceFeature([], tf.float32),
    }
    records = list(tf.data.TFRecordDataset(str(tmp_path / "out" / TFRECORD_FILE)))
    for record, (module, function) in zip(records, functions, strict=True):
        rows = (columns["module"] == module) & (columns["context"] == function)
        _, sequence = tf.io.parse_single_sequence_example(record, sequence_features=parsed)
        for name in ("mask", "use_def_density"):
            np.testing.assert_array_equal(sequence[name].numpy(), columns[name][rows][:, 0])
        np.testing.assert_array_equal(sequence[PROBLEM.policy.decision].numpy(), columns["action"][rows])
        np.testing.assert_array_equal(sequence["reward"].numpy(), columns["reward"][rows])
