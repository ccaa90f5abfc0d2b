"""A run's options: one source of code, known presets, sensible budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.console import UserError
from pipelines.options import RunOptions


def options(tmp_path: Path, **more: Any) -> RunOptions:
    recipe = tmp_path / "r.yaml"
    recipe.touch()
    return RunOptions(**{"output": tmp_path / "run", "recipe": recipe} | more)


def test_a_budget_is_passed_only_if_it_is_given(tmp_path: Path) -> None:
    assert options(tmp_path, preset="full").parameters()["train_minutes"] == ""
    assert options(tmp_path, preset="full", train_minutes=2.5).parameters()["train_minutes"] == "2.5"


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"recipe": None}, "none given"),
        ({"corpus": Path("/")}, "2 given"),
        ({"recipe": Path("/nowhere.yaml")}, "/nowhere.yaml does not exist"),
        ({"preset": "huge"}, "--preset huge: 'huge' is not one of"),
        ({"train_minutes": 0.0}, "--train-minutes 0: 0.0 is not in the range"),
        ({"min_reduction_percent": 101.0}, "--min-reduction-percent 101"),
        ({"max_slowdown_percent": 2.0, "problem": "regalloc"}, "--max-slowdown-percent 2: of no use for regalloc"),
        ({"max_slowdown_percent": 2.0, "recipe": None, "corpus": Path("/")}, "no benchmarks to run without a recipe"),
        ({"workers": "local:many"}, "--workers 'local:many'"),
    ],
)
def test_what_makes_no_sense_is_named(tmp_path: Path, more: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named) as raised:
        options(tmp_path, **more)
    assert raised.value.remedy
