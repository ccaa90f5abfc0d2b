"""Tests that tools for whole builds are checked before anything is compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.core.formats.toolchain import Toolchain
from components.core.objectives import OBJECTIVES, SCORE, SIZE
from components.core.projects.recipe import PACKAGED, load_recipes
from components.evaluation.config import EvaluationConfig
from components.evaluation.projects.whole_projects import require_tools
from components.platform.errors import UserError

CLANG = Path(shutil.which("clang-19") or "clang-19")


def config(path: Path, problem: str, stock_clang: Path | None) -> EvaluationConfig:
    return EvaluationConfig(
        path, path, path, path, release_toolchain=path, recipe=path, problem=problem, stock_clang=stock_clang
    )


def release(path: Path, problem: str, version: str | None = None) -> Toolchain:
    output = subprocess.run([CLANG, "--version"], capture_output=True, text=True, check=True).stdout
    own = output.split("clang version ")[1].split()[0]
    return Toolchain(path, "release", version or own, "x86_64-pc-linux-gnu", {problem: ()}, {})


@pytest.mark.parametrize(
    ("measure", "problem", "other"), [("size", "inlining", "regalloc"), ("score", "regalloc", "inlining")]
)
def test_stock_clang_must_exist_and_have_the_same_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure: str, problem: str, other: str
) -> None:
    objective, valid = OBJECTIVES[measure], release(tmp_path, problem)
    require_tools(objective, config(tmp_path, problem, CLANG), valid, ())
    require_tools(objective, config(tmp_path, problem, None), valid, ())
    with pytest.raises(UserError, match=other):
        require_tools(objective, config(tmp_path, other, CLANG), valid, ())
    with pytest.raises(UserError, match="not run"):
        require_tools(objective, config(tmp_path, problem, tmp_path / "clang"), valid, ())
    with pytest.raises(UserError, match=r"1\.2\.3"):
        require_tools(objective, config(tmp_path, problem, CLANG), release(tmp_path, problem, "1.2.3"), ())
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UserError, match="clang-19"):
        require_tools(objective, config(tmp_path, problem, None), valid, ())


@pytest.mark.parametrize(
    ("option", "value", "needed"),
    [
        ("--max-slowdown-percent", {"max_slowdown_percent": 1.0}, "without a recipe"),
        ("--time-repeats", {"time_repeats": 20}, "--time-repeats 20: there are no benchmarks"),
    ],
)
def test_slowdown_limit_and_time_require_benchmarks(
    tmp_path: Path, option: str, value: dict[str, Any], needed: str
) -> None:
    limited = replace(config(tmp_path, "inlining", CLANG), **value)
    valid, (lz4,) = release(tmp_path, "inlining"), load_recipes(PACKAGED / "lz4.yaml").projects
    require_tools(SIZE, limited, valid, [lz4])
    with pytest.raises(UserError, match=option):
        require_tools(SIZE, limited, valid, [replace(lz4, benchmarks=())])
    with pytest.raises(UserError, match=needed):
        replace(limited, recipe=None)


def test_slowdown_limit_requires_a_counter_and_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = replace(config(tmp_path, "inlining", CLANG), max_slowdown_percent=1.0)
    with pytest.raises(UserError, match="not applicable to regalloc"):
        replace(limited, problem="regalloc")
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UserError, match="valgrind"):
        require_tools(SIZE, limited, release(tmp_path, "inlining"), load_recipes(PACKAGED / "lz4.yaml").projects)


def test_rows_of_flags_are_checked_before_the_first_compile(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "clang").symlink_to(CLANG)
    valid, rows = release(tmp_path, "inlining"), replace(config(tmp_path, "inlining", CLANG), flag_rows=("lto",))
    lz4 = load_recipes(PACKAGED / "lz4.yaml").projects
    require_tools(SIZE, rows, valid, lz4)
    require_tools(SIZE, replace(rows, flag_rows=("all",)), valid, lz4)
    with pytest.raises(UserError, match="no-pie"):
        require_tools(SIZE, replace(rows, flag_rows=("no-pie",)), valid, lz4)
    with pytest.raises(UserError, match="program"):
        require_tools(SIZE, replace(rows, flag_rows=("program",)), valid, lz4)
    with pytest.raises(UserError, match="held-out"):
        require_tools(SIZE, rows, valid, [replace(lz4[0], binaries=())])
    for changed in ({"recipe": None}, {"problem": "regalloc"}):
        with pytest.raises(UserError, match="--flag-rows"):
            replace(rows, **changed)  # type: ignore[arg-type]


def test_counter_is_only_required_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    require_tools(SIZE, config(tmp_path, "inlining", CLANG), release(tmp_path, "inlining"), ())
    with pytest.raises(UserError, match="valgrind"):
        require_tools(SCORE, config(tmp_path, "regalloc", CLANG), release(tmp_path, "regalloc"), ())
