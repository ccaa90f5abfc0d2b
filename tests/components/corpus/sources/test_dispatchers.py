"""Tests the recipe of generated dispatchers: what it writes, builds, and that some are harder than LLVM's heuristic."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components.core.compiler.objects.elf import Elf
from components.core.projects.recipe import PACKAGED, load_recipes
from components.corpus.sources.build_config import BuildConfig
from components.corpus.sources.recipe_projects import build_corpus

GENERATE = PACKAGED / "dispatchers" / "generate.py"


def test_sources_are_the_same_in_each_run_and_cover_forms_languages_and_uses() -> None:
    generate = runpy.run_path(str(GENERATE))
    first, second = (dict(generate["sources"]([100, 300])) for _ in range(2))
    assert first == second and len(set(first.values())) == len(first)
    assert {name.partition("_")[0] for name in first} == {"switch", "calls", "table"}
    assert {name.partition(".")[2] for name in first} == {"c", "cpp"}
    assert first["calls_300_5.c"].count("  x += handle_0(") == 5
    assert first["switch_300_1.cpp"].count("static int handle_") == 300


@pytest.mark.toolchain
def test_recipe_builds_with_the_default_sizes_replaced(tmp_path: Path) -> None:
    """The packaged recipe, with small dispatchers, because those of 3,000 handlers take seconds each."""
    shutil.copytree(GENERATE.parent, tmp_path / "dispatchers")
    text = (PACKAGED / "dispatchers.yaml").read_text()
    recipe = tmp_path / "dispatchers.yaml"
    assert text.count("generate.py generated\n") == 1
    recipe.write_text(text.replace("generate.py generated\n", "generate.py generated --sizes 20,40\n"))
    for name in ("work", "cache", "corpus"):
        (tmp_path / name).mkdir()
    clang = shutil.which("clang-19")
    assert clang, "install clang-19"
    config = BuildConfig(Path(clang), tmp_path / "work", tmp_path / "cache", "-Oz")
    report = build_corpus(load_recipes(recipe).projects, tmp_path / "corpus", config)
    assert report.extracted == {"dispatchers": 28}


@pytest.mark.toolchain
def test_inlining_every_call_makes_shared_handlers_larger(tmp_path: Path) -> None:
    """What a policy must not learn: -inline-threshold stands for a policy that takes every call."""
    command = [sys.executable, str(GENERATE), str(tmp_path), "--sizes", "100"]
    subprocess.run(command, check=True)
    growth = []
    for source in sorted(tmp_path.glob("calls_100_5.*")):
        sizes = []
        for threshold in ("5", "100000"):
            output = tmp_path / f"{source.name}.o"
            inline = ["-mllvm", f"-inline-threshold={threshold}"]
            subprocess.run(["clang-19", "-O2", *inline, "-c", str(source), "-o", str(output)], check=True)
            sizes.append(Elf(output.read_bytes()).text_size())
        growth.append(sizes[1] / sizes[0])
    assert len(growth) == 2 and max(growth) > 1.2
