"""Explanations of a policy's decisions: gains are measured, and the same policy explains itself in any compiler."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.logs.inline_remarks import name_decisions, read_inline_remarks
from components.core.counterfactual.explain import (
    Explanation,
    explain_functions,
    explain_with_stock_clang,
    explain_with_training_clang,
)
from components.core.formats.toolchain import load_toolchain
from components.core.policy import pretrained
from components.core.policy.export import export_fast
from components.platform.errors import UserError
from components.policy.explain import print_explanation
from tests.components.conftest import module_called
from tests.components.toolchain.conftest import random_policy, random_upstream_policy

PRETRAINED = Path(pretrained.__file__).parent / "inlining"
CLANG_19 = Path("/usr/lib/llvm-19/bin/clang")
CLANG_22 = Path("/usr/lib/llvm-22/bin/clang")


@pytest.fixture(scope="module")
def policy(training_toolchain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random policy of LLVM's own features."""
    directory = tmp_path_factory.mktemp("policy")
    toolchain = load_toolchain(training_toolchain)
    dense = random_upstream_policy(toolchain)
    export_fast(dense, directory, toolchain.clang)
    dense.save(directory)
    return directory


@pytest.fixture
def module(tiny_corpus):
    return module_called(tiny_corpus, "strings")


@pytest.fixture
def explanation(policy: Path, module, training_toolchain: Path) -> Explanation:
    return explain_with_training_clang(policy, module, training_toolchain / "bin" / "clang", 8, 0)


@pytest.mark.toolchain
def test_gain_is_the_change_of_the_module_with_the_other_decision(
    explanation: Explanation, policy: Path, module, training_toolchain: Path
) -> None:
    """The object with one decision flipped and all others repeated differs by the stated bytes."""
    measured = np.flatnonzero(~np.isnan(explanation.gain_bytes))
    assert len(measured) >= 5
    table = tuple(sorted({*explanation.callers, *explanation.callees}))
    callers, callees = ([table.index(name) for name in names] for names in (explanation.callers, explanation.callees))
    compiler = Compiler(training_toolchain / "bin" / "clang", "inlining")
    differences = []
    for i in measured[:8].tolist():
        action = explanation.action.copy()
        action[i] = 1 - action[i]
        pinned = np.stack([callers, callees, explanation.ordinal, action], 1).astype(np.int32)
        forced = (ForcedDecisions((), np.zeros((0, 4), np.int32)), ForcedDecisions(table, pinned))
        samples = compiler(Request(module, Advisor("policy", policy=policy, samples=2), forced=forced)).samples
        change = samples[1].text_size_bytes - samples[0].text_size_bytes
        differences.append(abs(change - explanation.gain_bytes[i]))
    assert np.median(differences) <= 16, f"sizes of functions leave out padding only: {differences}"


@pytest.mark.toolchain
def test_decisions_are_those_of_a_compile_with_the_policy(explanation: Explanation) -> None:
    assert len(explanation) == len(explanation.callers) == len(explanation.callees) > 0
    np.testing.assert_array_equal(explanation.action, explanation.logits.argmax(axis=1))
    assert set(explanation.heuristic.tolist()) == {0, 1}
    order = explanation.worst_first()
    gains = explanation.gain_bytes[order]
    assert sorted(order.tolist()) == list(range(len(explanation)))
    assert np.all(np.diff(gains[~np.isnan(gains)]) >= 0) and not np.isnan(gains[0])


@pytest.mark.toolchain
def test_stock_clang_explains_a_policy_of_llvms_features(policy: Path, module, tmp_path: Path) -> None:
    explanation = explain_with_stock_clang(policy, module, CLANG_22, 22)
    np.testing.assert_array_equal(explanation.action, explanation.logits.argmax(axis=1))
    assert set(explanation.heuristic.tolist()) == {0, 1}
    explanation.write_csv(tmp_path / "decisions.csv")
    with open(tmp_path / "decisions.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["inline"]) for row in rows] == explanation.action.tolist()
    assert {"callee_users", "logit_inline", "gain_bytes"} <= set(rows[0])


@pytest.mark.toolchain
def test_stock_clang_of_the_same_version_names_and_measures_the_same_decisions(
    policy: Path, module, training_toolchain: Path
) -> None:
    """Its optimization record names what the training clang names; a flip changes its object by the stated bytes."""
    stock = explain_with_stock_clang(policy, module, CLANG_19, 19, flip_compiles=6)
    trained = explain_with_training_clang(policy, module, training_toolchain / "bin" / "clang", 0, 0)
    assert len(stock) > 20 and (stock.callers, stock.callees) == (trained.callers, trained.callees)
    np.testing.assert_array_equal(stock.ordinal, trained.ordinal)
    assert stock.size_bytes == trained.size_bytes and stock.measured_gains.size == 6
    compiler = Compiler(training_toolchain / "bin" / "clang", "inlining")
    for i in np.flatnonzero(~np.isnan(stock.gain_bytes)).tolist():
        key = (stock.callers[i], stock.callees[i], int(stock.ordinal[i]))
        forced = (ForcedDecisions.of({key: 1 - int(stock.action[i])}),)
        (flipped,) = compiler(Request(module, Advisor("policy", policy=policy, log=True), forced=forced)).samples
        assert flipped.text_size_bytes - stock.size_bytes == stock.gain_bytes[i], key


def test_remarks_that_do_not_fit_name_no_decision(tmp_path: Path) -> None:
    """Remarks on calls that the model does not decide about are skipped; others than the decisions' name none."""
    record = tmp_path / "remarks.yaml"
    record.write_text(
        "--- !Missed\nPass: inline\nName: NoDefinition\nFunction: f\nArgs:\n  - Callee: extern\n...\n"
        "--- !Passed\nPass: inline-ml\nName: InliningSuccess\nFunction: f\nArgs:\n  - Callee: 'on'\n"
        "  - cost_estimate: '-25'\n  - ShouldInline: 'true'\n...\n"
    )
    remarks = read_inline_remarks(record)
    columns = {"cost_estimate": np.array([[-25]], np.int64)}
    assert name_decisions(remarks, columns, np.array([1])) == [("f", "on")]
    assert name_decisions(remarks, columns, np.array([0])) == []
    assert name_decisions(remarks, {"cost_estimate": np.array([[7]], np.int64)}, np.array([1])) == []
    record.write_text("--- !Missed\nPass: [\n")
    assert read_inline_remarks(record) == [] == read_inline_remarks(tmp_path / "missing")


@pytest.mark.toolchain
def test_stock_clang_lacks_the_extended_features(training_toolchain: Path, module, tmp_path: Path) -> None:
    dense = random_policy(load_toolchain(training_toolchain).features["inlining"])
    dense.save(tmp_path)
    with pytest.raises(UserError, match="callee_linkage"):
        explain_with_stock_clang(tmp_path, module, CLANG_22, 22)


def test_csv_has_names_that_are_not_utf8_or_formulas(tmp_path: Path) -> None:
    names = ("caller\udcff", "=cmd|' /C calc'!A0", "a\n::error::b")
    count = len(names)
    explanation = Explanation(
        callers=names,
        callees=names,
        ordinal=np.arange(count),
        features={"cost": np.array([-5, 0, 5])},
        logits=np.zeros((count, 2), np.float32),
        action=np.ones(count, np.int64),
        heuristic=np.full(count, -1),
        gain_bytes=np.full(count, -2.0),
        size_bytes=10,
    )
    explanation.write_csv(tmp_path / "decisions.csv")
    print_explanation(explanation, 10)
    with open(tmp_path / "decisions.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["caller"] for row in rows] == ["caller\\xff", "'=cmd|' /C calc'!A0", "a\\n::error::b"]
    assert [row["cost"] for row in rows] == ["-5", "0", "5"] and rows[0]["gain_bytes"] == "-2"
    assert [path.name for path in tmp_path.iterdir()] == ["decisions.csv"]


@pytest.mark.toolchain
def test_function_is_explained_by_the_decisions_that_llvm_takes_otherwise(
    policy: Path, module, training_toolchain: Path
) -> None:
    """A function's bytes and the module's with the opposite decisions are those of a compile that forces these."""
    clang = training_toolchain / "bin" / "clang"
    compiler = Compiler(clang, "inlining")

    def sizes(advisor: Advisor, **request: Any) -> tuple[dict[str, int], int]:
        (sample,) = compiler(Request(module, advisor, want_functions=True, **request)).samples
        return sample.function_sizes.by_name(), sample.text_size_bytes

    before, _ = sizes(Advisor("default"))
    after, size_bytes = sizes(Advisor("policy", policy=policy))
    changed = [name for name in before.keys() | after.keys() if before.get(name, 0) != after.get(name, 0)]
    assert len(changed) >= 3
    explanation, effects = explain_functions(policy, module, clang, changed, 2)
    assert effects.keys() == set(changed)
    found = [(name, effect) for name, own in effects.items() for effect in own if effect.saved_bytes is not None]
    assert any(effect.function_growth for _, effect in found)
    for name, effect in found:
        names = {(explanation.callers[i], explanation.callees[i]) for i in effect.decisions}
        assert all(name in pair for pair in names)
        assert all(explanation.action[i] != explanation.heuristic[i] for i in effect.decisions)
    for name, effect in found[:4]:
        actions = {
            (explanation.callers[i], explanation.callees[i], int(explanation.ordinal[i])): int(action)
            for i, action in enumerate(explanation.action)
        }
        for i in effect.decisions:
            actions[explanation.callers[i], explanation.callees[i], int(explanation.ordinal[i])] ^= 1
        log = Advisor("policy", policy=policy, log=True)
        otherwise, total = sizes(log, forced=(ForcedDecisions.of(actions),))
        assert effect.saved_bytes == total - size_bytes
        assert effect.function_growth == otherwise.get(name, 0) - after.get(name, 0)
