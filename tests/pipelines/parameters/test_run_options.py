"""Tests of the options of a run: one source of code, known presets, valid budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.platform.errors import UserError
from pipelines.parameters.check import run_parameters


def parameters(tmp_path: Path, **more: Any) -> dict[str, str]:
    recipe = tmp_path / "r.yaml"
    recipe.touch()
    return run_parameters({"recipe": recipe} | more)


def test_training_budget_is_passed_only_if_given(tmp_path: Path) -> None:
    assert parameters(tmp_path, preset="full")["train_minutes"] == ""
    assert parameters(tmp_path, preset="full", train_minutes=2.5)["train_minutes"] == "2.5"


def test_benchmark_of_the_own_build_has_times_and_a_limit(tmp_path: Path) -> None:
    own = {"recipe": None, "corpus": Path("/"), "benchmark": "./app < 'a file'"}
    given = parameters(tmp_path, **own, time_repeats=20, max_slowdown_percent=2.0)
    assert (given["benchmark"], given["time_repeats"]) == ("./app < 'a file'", "20")


def test_external_clang_implies_llvms_features(tmp_path: Path) -> None:
    assert parameters(tmp_path)["features"] == "extended"
    external = parameters(tmp_path, strategy="external", clang="/usr/bin/clang")
    assert (external["features"], external["clang"]) == ("llvm", "/usr/bin/clang")


def test_features_are_passed(tmp_path: Path) -> None:
    assert parameters(tmp_path, features="llvm")["features"] == "llvm"
    plugin = {"strategy": "plugin", "llvm_major": 22}
    embeddings = parameters(tmp_path, features="ir2vec", ir2vec_vocab="random", **plugin)
    assert (embeddings["features"], embeddings["ir2vec_vocab"]) == ("ir2vec", "random")


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"recipe": None}, "none given"),
        ({"corpus": Path("/")}, "2 given"),
        ({"preset": "huge"}, "--preset huge: 'huge' is not one of"),
        ({"train_minutes": 0.0}, "--train-minutes 0: 0.0 is not in the range"),
        ({"min_reduction_percent": 101.0}, "--min-reduction-percent 101"),
        ({"max_slowdown_percent": 2.0, "problem": "regalloc"}, "--max-slowdown-percent 2: not applicable to regalloc"),
        (
            {"max_slowdown_percent": 2.0, "recipe": None, "corpus": Path("/")},
            "there are no benchmarks without a recipe",
        ),
        ({"time_repeats": 20, "recipe": None, "corpus": Path("/")}, "--time-repeats 20: there are no benchmarks"),
        ({"benchmark": "./app"}, "--benchmark ./app: a recipe names the benchmarks"),
        (
            {"benchmark": "./app", "relink": "no", "recipe": None, "corpus": Path("/")},
            "--benchmark ./app: it runs the programs that --relink no does not link",
        ),
        ({"relink": "no"}, "--relink no: the programs of a recipe are built"),
        ({"flag_rows": ("lto",), "problem": "regalloc"}, "--flag-rows lto: programs of a recipe"),
        ({"flag_rows": ("lto",), "recipe": None, "corpus": Path("/")}, "--flag-rows lto: programs of a recipe"),
        ({"workers": "local:many"}, "--workers 'local:many'"),
        ({"features": "ir2vec"}, "--features ir2vec: IR2Vec's embeddings need LLVM 22"),
        ({"features": "ir2vec", "strategy": "plugin", "llvm_major": 22}, "embeddings need a vocabulary"),
        ({"strategy": "external"}, "--strategy external without --clang PATH"),
        ({"clang": "/usr/bin/clang"}, "--strategy sdk with --clang /usr/bin/clang"),
        ({"strategy": "external", "clang": "/usr/bin/clang", "tune_minutes": 3.0}, "--tune-minutes 3: a search"),
        (
            {"strategy": "external", "clang": "/usr/bin/clang", "llvm_major": 22, "problem": "regalloc"},
            "--problem regalloc: LLVM lets a plugin decide on inlining only",
        ),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, more: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named) as raised:
        parameters(tmp_path, **more)
    assert raised.value.remedy
