"""Explanations of a policy's decisions: gains are measured, and the same policy explains itself in any compiler."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.logs.inline_remarks import name_decisions, read_inline_remarks
from components.core.formats.toolchain import load_toolchain
from components.core.policy import pretrained
from components.core.policy.export import export_fast
from components.platform.errors import UserError
from components.policy.__main__ import main
from components.policy.explain import (
    Explanation,
    explain_with_stock_clang,
    explain_with_training_clang,
    print_explanation,
)
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
    (strings,) = (m for m in tiny_corpus.modules if m.name.startswith("lib/strings"))
    return strings


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


def test_table_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """Without names and measurements there are no empty columns, and no order by harm."""
    explanation = Explanation(
        (),
        (),
        np.empty(0, np.int64),
        {},
        np.array([[0.0, 1.0], [0.0, 0.5]], np.float32),
        np.array([1, 1]),
        np.array([-1, -1]),
        np.full(2, np.nan),
        0,
    )
    print_explanation(explanation, 20)
    printed = " ".join(capsys.readouterr().out.split())
    assert "not measured, least sure first" in printed
    assert "caller" not in printed and "saves bytes" not in printed and "harmful" not in printed
    explanation.gain_bytes[0] = 3
    print_explanation(explanation, 20)
    printed = " ".join(capsys.readouterr().out.split())
    assert "most harmful first" in printed and "1 measured: 0 make the module larger, by 0 bytes" in printed


@pytest.mark.toolchain
def test_stock_clang_lacks_the_extended_features(training_toolchain: Path, module, tmp_path: Path) -> None:
    dense = random_policy(load_toolchain(training_toolchain).features["inlining"])
    dense.save(tmp_path)
    with pytest.raises(UserError, match=r"does not have all features of the policy; missing: .*callee_linkage"):
        explain_with_stock_clang(tmp_path, module, CLANG_22, 22)


@pytest.mark.toolchain
@pytest.mark.parametrize("compiler", ["--clang=clang-22", "--toolchain"])
def test_pretrained_policy_of_llvms_features_is_explained(
    compiler: str, module, tiny_corpus, training_toolchain: Path, tmp_path: Path
) -> None:
    option = f"--toolchain={training_toolchain}" if compiler == "--toolchain" else compiler
    arguments = [f"--corpus={tiny_corpus.directory}", "--policy=pretrained-llvm", f"--csv={tmp_path / 'csv'}", option]
    main(["explain", module.name, *arguments], standalone_mode=False)
    assert len((tmp_path / "csv").read_text().splitlines()) > 20


def test_unknown_module_is_refused_with_similar_names(tiny_corpus) -> None:
    name = tiny_corpus.modules[0].name
    arguments = [
        "explain",
        name[:-1],
        f"--policy={PRETRAINED}",
        f"--corpus={tiny_corpus.directory}",
        "--clang=clang-19",
    ]
    with pytest.raises(UserError, match="has no module") as caught:
        CliRunner().invoke(main, arguments, catch_exceptions=False, standalone_mode=False)
    assert f"such as {name}" in caught.value.remedy


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
