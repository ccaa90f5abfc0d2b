from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.core.formats.features import FeatureSpec
from components.core.formats.trace import (
    ModuleTrace,
    TraceWriter,
    load_trace,
    read_columns,
    read_modules,
    read_object_counts,
)
from components.platform.errors import UserError
from components.platform.storage.manifest import write_manifest
from components.platform.storage.publish import publish

FEATURES = (
    FeatureSpec("cost", "int64", (1,)),
    FeatureSpec("logits", "float32", (2, 3)),
    FeatureSpec("x", "float32", (1,)),
)
STRINGS = ["module", "context", "caller", "callee"]


def module_trace(name: str, rows: int, seed: int, contexts: int = 1) -> ModuleTrace:
    draw = np.random.default_rng(seed)
    names = [f"{name}::f{i}" for i in range(5)] + ["shared"]
    lengths = np.diff(np.sort(np.r_[0, draw.integers(0, rows + 1, contexts - 1), rows]))
    return ModuleTrace(
        module=name,
        text_size_bytes=int(draw.integers(1, 2**40)),
        compile_s=float(draw.random()),
        contexts=[f"context {i}" for i in range(contexts)],
        context=np.repeat(np.arange(contexts, dtype=np.int32), lengths),
        step=np.concatenate([np.arange(n, dtype=np.int32) for n in lengths]),
        names=names,
        caller=draw.integers(0, len(names), rows).astype(np.int32),
        callee=draw.integers(0, len(names), rows).astype(np.int32),
        columns={
            "cost": draw.integers(-(2**63), 2**63 - 1, (rows, 1)),
            "logits": draw.random((rows, 2, 3), np.float32),
            "x": draw.random((rows, 1), np.float32),
        },
        action=draw.integers(0, 2, rows),
        reward=0.25,
        weak_functions=names,
    )


def write(directory: Path, modules: list[ModuleTrace], rows_per_shard: int) -> None:
    with publish(directory, "trace") as partial:
        writer = TraceWriter(partial, "inlining", "inlining_decision", FEATURES, rows_per_shard)
        for module in modules:
            writer.add(module)
        writer.close("corpus digest", "toolchain digest")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3)), max_size=8),
    rows_per_shard=st.sampled_from([1, 7, 40, 1000]),
    seed=st.integers(0, 99),
)
def test_written_trace_is_read_back(
    sizes: list[tuple[int, int]], rows_per_shard: int, seed: int, tmp_path: Path
) -> None:
    modules = [module_trace(f"p/m{i}.o", rows, seed + i, contexts) for i, (rows, contexts) in enumerate(sizes)]
    write(tmp_path / "trace", modules, rows_per_shard)
    names = [*STRINGS, "step", "cost", "logits", "x", "action", "reward"]
    read = read_columns(tmp_path / "trace", names)
    assert list(read) == names

    def all_of(values: list[np.ndarray], empty: np.ndarray) -> np.ndarray:
        return np.concatenate([*values, empty])

    none = np.empty(0, object)
    for name, expected in {
        "module": all_of([np.repeat(np.array([m.module], object), len(m.action)) for m in modules], none),
        "context": all_of([np.array(m.contexts, object)[m.context] for m in modules], none),
        "caller": all_of([np.array(m.names, object)[m.caller] for m in modules], none),
        "callee": all_of([np.array(m.names, object)[m.callee] for m in modules], none),
        "step": all_of([m.step for m in modules], np.empty(0, np.int32)),
        "cost": all_of([m.columns["cost"].ravel() for m in modules], np.empty(0, np.int64)),
        "logits": all_of([m.columns["logits"] for m in modules], np.empty((0, 2, 3), np.float32)),
        "x": all_of([m.columns["x"].ravel() for m in modules], np.empty(0, np.float32)),
        "action": all_of([m.action for m in modules], np.empty(0, np.int64)),
        "reward": all_of([np.full(len(m.action), 0.25) for m in modules], np.empty(0)).astype(np.float32),
    }.items():
        assert read[name].dtype == expected.dtype, name
        np.testing.assert_array_equal(read[name], expected, err_msg=name)
    table = read_modules(tmp_path / "trace")
    assert table["module"].tolist() == [m.module for m in modules]
    assert table["text_size_bytes"].tolist() == [m.text_size_bytes for m in modules]
    assert table["decisions"].tolist() == [len(m.action) for m in modules]
    assert table["compile_s"].tolist() == [m.compile_s for m in modules]
    trace = load_trace(tmp_path / "trace")
    assert (trace.problem, trace.decision, trace.features) == ("inlining", "inlining_decision", FEATURES)
    assert (trace.modules, trace.decisions) == (len(modules), sum(rows for rows, _ in sizes))
    assert (trace.corpus, trace.toolchain) == ("corpus digest", "toolchain digest")


def test_strings_are_dictionary_encoded_and_modules_stay_in_one_shard(tmp_path: Path) -> None:
    write(tmp_path / "trace", [module_trace(f"m{i}", 10, i) for i in range(5)], 15)
    shards = load_trace(tmp_path / "trace").shards
    assert [pq.read_metadata(shard).num_rows for shard in shards] == [20, 20, 10]
    schema = pq.read_schema(shards[0])
    assert all(str(schema.field(name).type).startswith("dictionary<values=string") for name in STRINGS)
    assert pq.ParquetFile(shards[0]).metadata.row_group(0).column(0).compression == "ZSTD"


def test_name_that_is_not_utf8_is_replaced(tmp_path: Path) -> None:
    module = module_trace("m", 3, 0)
    names = [b"bad\xff".decode("utf-8", "surrogateescape")] * 6
    write(tmp_path / "trace", [ModuleTrace(**{**vars(module), "names": names})], 15)
    assert set(read_columns(tmp_path / "trace", ["caller"])["caller"]) == {"bad\ufffd"}


def test_objects_that_define_a_weak_function_are_counted_per_project(tmp_path: Path) -> None:
    modules = [module_trace(name, 3, 0) for name in ("p/a.o", "p/b.o", "p/c.o", "q/a.o", "q/b.o", "r/a.o")]
    write(tmp_path / "trace", modules, 15)
    assert read_object_counts(tmp_path / "trace") == {"p": {"shared": 3}, "q": {"shared": 2}}
    write(tmp_path / "none", [], 15)
    assert read_object_counts(tmp_path / "none") == {}


def test_trace_without_objects_has_no_function_counts(tmp_path: Path) -> None:
    scored = ModuleTrace(**{**vars(module_trace("p/a.o", 3, 0)), "weak_functions": None})
    write(tmp_path / "trace", [module_trace("p/b.o", 3, 0), scored], 15)
    with pytest.raises(UserError, match="functions") as caught:
        read_object_counts(tmp_path / "trace")
    assert "mlgo trace" in caught.value.remedy


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    write(tmp_path / "trace", [module_trace("m", 50, 0)], 15)
    return tmp_path / "trace"


def test_unknown_column_is_named(trace: Path) -> None:
    with pytest.raises(UserError, match="column height"):
        read_columns(trace, ["cost", "height"])


@pytest.mark.parametrize("name", ["trace-00000.parquet", "modules.parquet", "functions.parquet"])
@pytest.mark.parametrize("damage", ["truncated", "zeroed", "text"])
def test_corrupt_parquet_is_named(name: str, damage: str, trace: Path) -> None:
    readers = {"modules.parquet": read_modules, "functions.parquet": read_object_counts}
    readers["trace-00000.parquet"] = lambda directory: read_columns(directory, ["cost"])
    data = (trace / name).read_bytes()
    damaged = {"truncated": data[: len(data) // 2], "zeroed": data[:64] + bytes(len(data) - 64), "text": b"PAR1 no"}
    (trace / name).write_bytes(damaged[damage])
    if damage != "zeroed":
        with pytest.raises(UserError, match=name):  # detected by the sizes in the manifest
            load_trace(trace)
    write_manifest(trace)
    with pytest.raises(UserError, match=name):
        readers[name](trace)


def test_shard_that_lacks_a_column_of_the_others_is_named(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    write(trace, [module_trace(name, 20, 0) for name in "abc"], 15)
    shard = load_trace(trace).shards[-1]
    pq.write_table(pq.ParquetFile(shard).read().drop_columns(["action"]), shard)
    write_manifest(trace)
    with pytest.raises(UserError, match="column action"):
        read_columns(trace, ["step", "action"])


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not valid JSON"), ('{"version": 99}', "version 99"), ('{"version": 1}', "not a trace desc")],
)
def test_corrupt_description_is_refused(text: str, message: str, trace: Path) -> None:
    (trace / "trace.json").write_text(text)
    write_manifest(trace)
    with pytest.raises(UserError, match=message):
        load_trace(trace)


def test_other_artifact_is_refused(tmp_path: Path) -> None:
    with publish(tmp_path / "other", "trace") as partial:
        (partial / "x").write_text(json.dumps({}))
    with pytest.raises(UserError, match=r"no trace\.json"):
        load_trace(tmp_path / "other")
    with pytest.raises(UserError, match="no such"):
        load_trace(tmp_path / "nothing")
