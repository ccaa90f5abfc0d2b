"""Decisions to train on, held-out decisions, and inputs that do not match."""

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.formats.trace import ModuleTrace, TraceWriter, load_trace, read_columns
from components.core.formats.vocab import load_vocab, write_vocab
from components.platform.errors import UserError
from components.platform.storage import publish, write_manifest
from components.vocab.build import build
from components.vocab.config import VocabConfig
from components.warmstart.data import heldout_modules, load_decisions, require_no_remains, require_vocab
from tests.components.warmstart.conftest import FEATURES

names = st.lists(st.text(min_size=1, max_size=5), unique=True, max_size=30)


@given(names, st.floats(0, 0.9), st.integers(0, 9))
def test_held_out_modules_are_never_all(modules, fraction, seed):
    heldout = heldout_modules(modules, fraction, seed)
    assert heldout <= set(modules)
    assert heldout == heldout_modules(modules[::-1], fraction, seed)
    if len(modules) > 1:
        assert len(heldout) < len(modules)
        assert bool(heldout) == (fraction > 0)


def test_all_decisions_of_held_out_modules_are_held_out(inputs):
    decisions = load_decisions(inputs["trace"], inputs["vocab"], 0.25, 3, {spec.name for spec in FEATURES})
    modules = read_columns(inputs["trace"], ["module"])["module"]
    parts = {bool(kind): set(modules[decisions.heldout == kind]) for kind in (True, False)}
    assert len(parts[True]) == 5 and not parts[True] & parts[False]
    assert decisions.observed.shape == (6000, 8)
    quantiles, magnitudes = np.split(decisions.observed, 2, axis=1)
    assert quantiles.min() >= 0 and quantiles.max() == 1
    # Costs are signed, and what is always 0 has no magnitude.
    assert magnitudes.min(axis=0)[0] < 0 < magnitudes.max(axis=0)[0] < 1 and not magnitudes[:, 3].any()
    assert 0.2 < decisions.action.mean() < 0.8
    other = load_decisions(inputs["trace"], inputs["vocab"], 0.25, 4, {spec.name for spec in FEATURES})
    assert (other.heldout != decisions.heldout).any(), "the seed determines them"


def test_missing_feature_in_vocab_is_reported(inputs, tmp_path):
    write_vocab(tmp_path, {"cost": np.arange(1000.0)})
    write_manifest(tmp_path)
    with pytest.raises(UserError, match="threshold, blocks"):
        load_decisions(inputs["trace"], tmp_path, 0.1, 0)


def test_vocab_of_a_trace_with_features_that_no_policy_uses_is_accepted(tmp_path):
    policy = problems.get("inlining").policy
    names = ["callee_users", *sorted(policy.excluded_features | policy.per_instruction_features)]
    assert len(names) > 20
    with publish(tmp_path / "trace", "trace") as directory:
        writer = TraceWriter(directory, "inlining", "inlining_decision", [FeatureSpec(name, "int64") for name in names])
        zeros = np.zeros(3, np.int32)
        values = dict.fromkeys(names, np.arange(3))
        writer.add(ModuleTrace("p/m", 1, 0.0, [""], zeros, zeros, ["f"], zeros, zeros, values, np.arange(3)))
        writer.close("corpus digest", "")
    assert build(VocabConfig(tmp_path / "trace", tmp_path / "vocab")) == 1 + len(policy.excluded_features)
    assert {*load_vocab(tmp_path / "vocab")} == {*names} - policy.per_instruction_features
    require_vocab(tmp_path / "trace", tmp_path / "vocab")


def test_policy_has_the_features_that_a_vocab_of_ml_compiler_opt_has(inputs, tmp_path, capsys):
    (tmp_path / "cost.buckets").write_text("".join(f"{cost}.0\n" for cost in range(-200, 200)))
    (tmp_path / "threshold.buckets").write_text("5.0\n30.0\n50.0\n")
    require_vocab(inputs["trace"], tmp_path)
    decisions = load_decisions(inputs["trace"], tmp_path, 0.1, 0, {spec.name for spec in FEATURES})
    assert [spec.name for spec in decisions.features] == ["cost", "threshold"]
    assert decisions.observed.shape == (6000, 4) and decisions.buckets["threshold"].shape == (1000,)
    assert "blocks, always_zero" in " ".join(capsys.readouterr().out.split())


def test_incomplete_copy_of_a_vocab_is_no_vocab_of_ml_compiler_opt(inputs, tmp_path):
    shutil.copytree(inputs["vocab"], tmp_path / "copy", ignore=shutil.ignore_patterns("*.json", "threshold*"))
    trace = load_trace(inputs["trace"])
    with pytest.raises(UserError, match="always_zero"):
        require_no_remains(trace, tmp_path / "copy", ["cost", "threshold"])
    require_no_remains(trace, tmp_path / "copy", ["cost", "threshold", "blocks", "always_zero"])
    require_no_remains(trace, inputs["vocab"], [])
    shutil.copytree(inputs["vocab"], tmp_path / "theirs", ignore=shutil.ignore_patterns("*.json"))
    require_no_remains(trace, tmp_path / "theirs", ["cost", "threshold"])


def test_vocab_of_ml_compiler_opt_for_another_problem_is_refused(inputs, tmp_path):
    (tmp_path / "progress.buckets").write_text("0\n1\n")
    with pytest.raises(UserError, match="no feature"):
        require_vocab(inputs["trace"], tmp_path)
    with pytest.raises(UserError, match="no feature"):
        load_decisions(inputs["trace"], tmp_path, 0.1, 0, {spec.name for spec in FEATURES})


def test_truncated_trace_is_refused(inputs, tmp_path):
    shutil.copytree(inputs["trace"], tmp_path / "trace")
    (shard,) = (tmp_path / "trace").glob("trace-*.parquet")
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(UserError, match="trace-00000"):
        load_decisions(tmp_path / "trace", inputs["vocab"], 0.1, 0)
