"""Vocabs of traces with several shards, and of a part of their decisions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.trace import ModuleTrace, TraceWriter, iterate_columns, load_trace
from components.core.formats.vocab import load_vocab, quantiles
from components.platform.errors import UserError
from components.platform.storage.publish import publish
from components.vocab.build import build
from components.vocab.config import VocabConfig

SIZES = (300, 1, 500, 200)


def write_trace(directory: Path, problem: str, rows_per_shard: int) -> dict[str, np.ndarray]:
    """Write a trace, and return its columns."""
    rng = np.random.default_rng(0)
    count = sum(SIZES)
    columns: dict[str, np.ndarray]
    if problem == "inlining":
        columns = {name: rng.integers(-900, 900, (count, 1)) for name in ("callee_users", "cost_estimate")}
    else:
        mask = rng.integers(0, 2, (count, 1, 5))
        weights = np.where(mask == 1, rng.random(mask.shape), np.nan).astype(np.float32)
        columns = {"mask": mask, "nr_urgent": weights, "progress": rng.random((count, 1)).astype(np.float32)}
    features = [FeatureSpec(name, str(column.dtype), column.shape[1:]) for name, column in columns.items()]
    with publish(directory, "trace") as partial:
        writer = TraceWriter(partial, problem, "decision", features, rows_per_shard)
        begin = 0
        for number, size in enumerate(SIZES):
            rows = slice(begin, begin + size)
            zeros = np.zeros(size, np.int32)
            part = {name: column[rows] for name, column in columns.items()}
            module = ModuleTrace(f"m{number}", None, 0.0, [""], zeros, zeros, [], None, None, part, zeros)
            writer.add(module)
            begin += size
        writer.close("", "")
    return columns


@pytest.mark.parametrize("rows_per_shard", [1, 400, 10_000])
def test_quantiles_are_those_of_all_shards(tmp_path: Path, rows_per_shard: int) -> None:
    columns = write_trace(tmp_path / "trace", "inlining", rows_per_shard)
    assert len(load_trace(tmp_path / "trace").shards) == {1: 4, 400: 2, 10_000: 1}[rows_per_shard]
    assert build(VocabConfig(tmp_path / "trace", tmp_path / "vocab")) == 2
    for name, boundaries in load_vocab(tmp_path / "vocab").items():
        np.testing.assert_array_equal(boundaries, quantiles(columns[name]))


@pytest.mark.parametrize("rows_per_shard", [1, 10_000])
def test_values_of_masked_actions_do_not_count(tmp_path: Path, rows_per_shard: int) -> None:
    columns = write_trace(tmp_path / "trace", "regalloc", rows_per_shard)
    build(VocabConfig(tmp_path / "trace", tmp_path / "vocab"))
    vocab = load_vocab(tmp_path / "vocab")
    np.testing.assert_array_equal(vocab["nr_urgent"], quantiles(columns["nr_urgent"][columns["mask"] == 1]))
    np.testing.assert_array_equal(vocab["progress"], quantiles(columns["progress"]))


def test_shards_are_the_whole_trace(tmp_path: Path) -> None:
    columns = write_trace(tmp_path / "trace", "regalloc", 1)
    parts = list(iterate_columns(load_trace(tmp_path / "trace"), ["mask", "progress"]))
    assert [len(part["mask"]) for part in parts] == list(SIZES)
    np.testing.assert_array_equal(np.concatenate([part["mask"] for part in parts]), columns["mask"])
    with pytest.raises(UserError, match="nothing"):
        list(iterate_columns(load_trace(tmp_path / "trace"), ["nothing"]))


def test_seed_chooses_decisions(tmp_path: Path) -> None:
    columns = write_trace(tmp_path / "trace", "inlining", 1)

    def sampled(rate: float, seed: int) -> np.ndarray:
        output = tmp_path / f"{rate}-{seed}"
        build(VocabConfig(tmp_path / "trace", output, rate, seed))
        origin = json.loads((output / "vocab.json").read_text())
        assert (origin["sampling_rate"], origin["seed"]) == (rate, seed)
        return load_vocab(output)["cost_estimate"]

    first = sampled(0.2, 0)
    assert set(first) < set(columns["cost_estimate"].ravel()) and len(set(first)) < 300
    assert not np.array_equal(first, sampled(0.2, 1))
    build(VocabConfig(tmp_path / "trace", tmp_path / "again", 0.2, 0))
    np.testing.assert_array_equal(load_vocab(tmp_path / "again")["cost_estimate"], first)
    with pytest.raises(UserError, match="callee_users"):
        build(VocabConfig(tmp_path / "trace", tmp_path / "none", 1e-9))
    assert not (tmp_path / "none").exists()
