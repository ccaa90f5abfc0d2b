"""The command that explains a policy's decisions, and its table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from components.core.counterfactual.explain import Explanation
from components.core.policy import pretrained
from components.platform.errors import UserError
from components.policy.__main__ import main
from components.policy.explain import print_explanation

PRETRAINED = Path(pretrained.__file__).parent / "inlining"


def explain(
    callers: Sequence[str] = (), callees: Sequence[str] = (), heuristic: Sequence[int] = (-1, -1)
) -> Explanation:
    logits, steps = np.array([[0.0, 1.0], [0.0, 0.5]], np.float32), np.zeros(len(callers), np.int64)
    decided, gain = (np.array([1, 1]), np.array(heuristic)), np.full(2, np.nan)
    return Explanation(tuple(callers), tuple(callees), steps, {}, logits, *decided, gain, 0)


def test_table_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """Without names and measurements there are no empty columns, and no order by harm."""
    explanation = explain()
    print_explanation(explanation, 20)
    printed = " ".join(capsys.readouterr().out.split())
    assert "not measured" in printed
    assert "caller" not in printed and "saves bytes" not in printed and "harmful" not in printed
    explanation.gain_bytes[0] = 3
    print_explanation(explanation, 20)
    printed = " ".join(capsys.readouterr().out.split())
    assert "harmful first" in printed and "1 measured" in printed


@pytest.mark.toolchain
@pytest.mark.parametrize("compiler", ["--clang=clang-22", "--toolchain"])
def test_pretrained_policy_of_llvms_features_is_explained(
    compiler: str, tiny_corpus, training_toolchain: Path, tmp_path: Path
) -> None:
    option = f"--toolchain={training_toolchain}" if compiler == "--toolchain" else compiler
    arguments = [f"--corpus={tiny_corpus.directory}", "--policy=pretrained-llvm", f"--csv={tmp_path / 'csv'}", option]
    main(["explain", "lib/strings.cpp.o", *arguments], standalone_mode=False)
    assert len((tmp_path / "csv").read_text().splitlines()) > 20


def test_unknown_module_is_refused_with_similar_names(tiny_corpus) -> None:
    name = tiny_corpus.modules[0].name
    options = [f"--policy={PRETRAINED}", f"--corpus={tiny_corpus.directory}", "--clang=clang-19"]
    with pytest.raises(UserError, match="no module") as caught:
        CliRunner().invoke(main, ["explain", name[:-1], *options], catch_exceptions=False, standalone_mode=False)
    assert f"such as {name}" in caught.value.remedy


def test_names_are_demangled_and_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    caller = (
        "_ZNSt6vectorIN4YAML4NodeESaIS1_EE17_M_realloc_insertIJS1_EEEvN9__gnu_cxx17__normal_iteratorIPS1_S3_EEDpOT_"
    )
    print_explanation(explain((caller, "main"), ("_ZN5table3Row3sumEi", "odd\nname"), (0, 1)), 20)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert len(rows) == 2, "a row for each decision"
    assert "table::Row::sum(int)" in rows[1] and "std::vector<" in rows[1] and "::_M_realloc_insert<" in rows[1]
    assert "inline" in rows[1] and "refuse" in rows[1] and "odd\\nname" in rows[0]
