"""Tests of whole projects built with stock clang and with a release clang."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import UNSET

from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.inline_plan import PLAN_FILE, PlannedModule, plan_flags, write_plan
from components.core.compiler.source_language import Language
from components.core.formats.toolchain import Toolchain
from components.core.projects.build import BuiltProject
from components.core.projects.flags.build_variants import HEURISTIC, BuildVariant, require_same_version
from components.core.projects.flags.types import Kind, SectionSizes
from components.core.projects.recipe import Recipe, Source
from components.evaluation.metrics_types import encode_json
from components.evaluation.projects.linked_binaries import Binary, compare_projects, linked_totals, summarize_binaries
from components.evaluation.report import linked_tables
from components.platform.errors import UserError
from tests.support.commands import run_command

CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(unknown CXX)
option(BUILD_SHARED_LIBS "" ON)
add_library(stack stack.cpp)
add_library(part STATIC stack.cpp)
add_executable(main main.cpp)
target_link_libraries(main stack)
"""
STACK = """
#include <string>
#include <vector>
std::vector<std::string> stack;
void push(const std::string &word) { stack.push_back(word + word); }
int depth() { return static_cast<int>(stack.size()); }
"""
MAIN = """
#include <iostream>
#include <string>
void push(const std::string &);
int depth();
int main(int count, char **words) {
  for (int i = 0; i < count; ++i) push(words[i]);
  std::cout << depth() << "\\n";
}
"""
C_CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(planned C)
add_executable(main main.c)
"""
C_MAIN = """
#include <stdlib.h>
static unsigned mix(unsigned x) {
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  return (x ^ (x >> 16)) + (unsigned)abs((int)x) % 7;
}
int main(int count, char **words) { return (int)(mix((unsigned)count) + mix((unsigned)words[0][0])); }
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    for name, text in (("CMakeLists.txt", CMAKE), ("stack.cpp", STACK), ("main.cpp", MAIN)):
        (source / name).write_text(text)
    path = tmp_path / "recipe.yaml"
    binaries = "[libstack.so, libpart.a, main]"
    path.write_text(f"name: unknown\nsource: {{path: {source}}}\ncmake: {{}}\nbinaries: {binaries}\n")
    return path


def evaluation(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_command("components.evaluation", *arguments, timeout=600)


@pytest.mark.toolchain
def test_only_the_policy_differs(tmp_path: Path, recipe: Path, release: Path) -> None:
    output = tmp_path / "binaries"
    done = evaluation("compare-binaries", "--recipe", recipe, "--release-toolchain", release, "--output", output)
    assert done.returncode == 0, done.stderr
    compared = json.loads((output / "binaries.json").read_text())
    entries = {entry["name"]: entry for entry in compared["binaries"] if entry["link_variant"] == "default"}
    assert {name: entry["kind"] for name, entry in entries.items()} == {
        "libpart.a": "static library",
        "libstack.so": "shared library",
        "main": "program",
    }
    # The policy never inlines, so code differs. Constants do not depend on decisions.
    library = entries["libstack.so"]
    assert library["stock"]["text"] != library["policy"]["text"]
    assert library["stock"]["rodata"] == library["policy"]["rodata"]
    # Only the program has the hidden variant, with its library linked statically.
    (hidden,) = (entry for entry in compared["binaries"] if entry["link_variant"] == "hidden")
    assert (hidden["name"], hidden["language"]) == ("main", "c++")
    assert hidden["stock"]["dynstr"] < entries["main"]["stock"]["dynstr"] + library["stock"]["dynstr"]
    assert {name: total["c++"]["files"] for name, total in compared["linked"].items()} == {"default": 2, "hidden": 1}
    assert "unknown/libstack.so" in done.stdout and "all (1)" in done.stdout
    assert sorted(path.name for path in output.iterdir()) == ["binaries.json", "manifest.json"]


@pytest.mark.toolchain
def test_plan_is_compared_with_the_policy_alone(tmp_path: Path, recipe: Path, release: Path) -> None:
    """The policy never inlines; the plan inlines one of two equal calls."""
    source = tmp_path / "source"
    (source / "CMakeLists.txt").write_text(C_CMAKE)
    (source / "main.c").write_text(C_MAIN)
    recipe.write_text(f"name: planned\nsource: {{path: {source}}}\ncmake: {{}}\nbinaries: [main]\n")
    plan = tmp_path / "plan"
    plan.mkdir()
    decisions = ForcedDecisions.of({("main", "mix", 0): 1})
    write_plan(plan / PLAN_FILE, [PlannedModule("main.c", decisions)], 19)
    output = tmp_path / "binaries"
    options = ["--recipe", recipe, "--release-toolchain", release, "--plan", plan, "--link-variant", "default"]
    options += ["--output", output]
    done = evaluation("compare-binaries", *options)
    assert done.returncode == 0, done.stderr
    compared = json.loads((output / "binaries.json").read_text())
    (main,) = compared["binaries"]
    assert main["plan"]["sizes"]["text"] > main["policy"]["text"]
    assert main["plan"]["sizes"]["rodata"] == main["policy"]["rodata"] == main["stock"]["rodata"]
    assert main["plan"]["against_policy_percent"] < 0
    assert compared["linked"]["default"]["all"]["plan"] == main["plan"]
    assert "without plan" in done.stdout
    assert "policy and plan" in done.stdout


@pytest.mark.toolchain
def test_evaluation_builds_heldout_projects(
    tmp_path: Path, recipe: Path, corpus_directory: Path, training_toolchain: Path, release: Path, never: Path
) -> None:
    output = tmp_path / "evaluation"
    options = ["--corpus", corpus_directory, "--toolchain", training_toolchain, "--policy", never]
    options += ["--release-toolchain", release, "--recipe", recipe, "--thresholds", "", "--output", output]
    done = evaluation(*options)
    assert done.returncode == 0, done.stderr
    metrics = json.loads((output / "metrics.json").read_text())
    assert [binary["name"] for binary in metrics["binaries"]] == ["libpart.a", "libstack.so", "main", "main"]
    assert list(metrics["linked"]) == ["default", "hidden"]
    page = (output / "report.html").read_text()
    assert "unknown/libstack.so" in page
    written = (
        "manifest.json measurements.json metrics.json model-card.json model-card.md report.csv report.html summary.md"
    )
    assert sorted(path.name for path in output.iterdir()) == written.split()


def binary(name: str, language: Language | None, variant: str, stock: int, policy: int) -> Binary:
    sizes = [SectionSizes(size // 2, size // 2, 0, 0, 0, 0, 0, size, size) for size in (stock, policy)]
    kind: Kind = "static library" if language is None else "program"
    return Binary("p", name, kind, language, variant, *sizes)


def test_linked_files_are_summed_by_variant_and_language() -> None:
    binaries = [
        binary("a", "c++", "default", 1000, 900),
        binary("b", "c", "default", 1000, 1000),
        binary("a", "c++", "hidden", 400, 380),
        binary("lib.a", None, "default", 5000, 10),
    ]
    totals = linked_totals(binaries)
    figures = {
        (variant, language): (total.files, round(total.reduction_percent or 0, 6), total.policy.total)
        for variant, languages in totals.items()
        for language, total in languages.items()
    }
    assert figures == {
        ("default", "all"): (2, 5.0, 1900),
        ("default", "c++"): (1, 10.0, 900),
        ("default", "c"): (1, 0.0, 1000),
        ("hidden", "all"): (1, 5.0, 380),
        ("hidden", "c++"): (1, 5.0, 380),
    }
    assert linked_tables.linked_lines(totals)[0].startswith("linked, default, all (2): text (llvm-size) 5.00% smaller")
    assert linked_totals(binaries[3:]) == {}


def test_part_of_the_policy_is_against_the_same_clang_by_the_heuristic() -> None:
    binaries = [binary("a", "c", "default", 1000, 900), binary("b", "c", "default", 1000, 1000)]
    plain = [SectionSizes(text=size, total=size, llvm_size_text=size) for size in (980, 1020)]
    built = [replace(binary, heuristic=sizes) for binary, sizes in zip(binaries, plain, strict=True)]
    total = linked_totals(built)["default"]["all"]
    assert total.policy_part_percent == pytest.approx(5.0) and total.reduction_percent == pytest.approx(5.0)
    assert "own part" in (linked_tables.linked_lines({"default": {"all": total}})[1])
    assert linked_totals([built[0], binaries[1]])["default"]["all"].heuristic is UNSET, "not all files"


def test_plan_is_summed_and_compared_with_stock_and_policy() -> None:
    binaries = [binary("a", "c", "default", 1000, 900), binary("b", "c", "default", 1000, 1000)]
    sizes = [SectionSizes(text=size, total=size, llvm_size_text=size) for size in (850, 860)]
    planned = [replace(binary, plan=plan) for binary, plan in zip(binaries, sizes, strict=True)]
    total = linked_totals(planned)["default"]["all"].plan
    assert total is not UNSET and total.sizes.total == 1710
    assert (total.reduction_percent, total.against_policy_percent) == pytest.approx((14.5, 10.0))
    alone, with_plan = linked_tables.linked_lines(linked_totals(planned))[:2]
    assert "5.00% smaller" in alone
    assert "14.50% smaller" in with_plan and "71.00% larger" in with_plan and with_plan.endswith("10.00% smaller")
    without = summarize_binaries(binaries)
    assert "plan" not in encode_json(without) and '"plan"' in encode_json(summarize_binaries(planned))


@pytest.fixture
def built_with() -> list[list[str]]:
    """The compiler flags of each build of `fake_builds`."""
    return []


@pytest.fixture
def fake_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built_with: list[list[str]]) -> Toolchain:
    """A release clang with a policy. Builds of projects with the name "broken" fail if there are link flags, those of
    "missing" always, those of "refused" with the release clang."""

    def whole_build(
        recipe: Recipe, variant: BuildVariant, *_: object
    ) -> AbstractContextManager[tuple[Path, BuiltProject]]:
        built_with.append(variant.flags)
        if recipe.name == "broken" and variant.link_flags:
            raise UserError("broken left none of its binaries (main); the end of its log:\nld: error", "")
        if recipe.name == "missing" or (recipe.name == "refused" and variant.title == "release clang"):
            raise UserError(f"{recipe.name}: its source cannot be fetched; the end of its log:\n404", "")
        binaries = tuple(tmp_path / glob for glob in recipe.binaries)
        for path in binaries:
            shutil.copy("/usr/bin/true", path)
        return nullcontext((tmp_path, BuiltProject(tmp_path, tmp_path, binaries, (), tmp_path)))

    monkeypatch.setattr("components.evaluation.projects.linked_binaries.whole_build", whole_build)
    monkeypatch.setattr("components.core.projects.flags.build_variants.require_same_version", lambda *_: None)
    return Toolchain(tmp_path, "release", "19.1.7", "x86_64-pc-linux-gnu", {"inlining": ()}, {})


def test_project_that_fails_to_link_is_left_out_of_that_variant(
    tmp_path: Path, fake_builds: Toolchain, capsys: pytest.CaptureFixture[str]
) -> None:
    recipes = [
        Recipe(name, Source("path", str(tmp_path)), binaries=binaries)
        for name, binaries in (("good", ("main", "libmain.so")), ("broken", ("main",)), ("library", ("libmain.so",)))
    ]
    arguments = (Path("clang"), fake_builds, "inlining", tmp_path, tmp_path, 1)
    compared = compare_projects(recipes, *arguments)
    built = [f"{binary.project}/{binary.name}" for binary in compared]
    assert built == ["good/main", "good/libmain.so", "broken/main", "library/libmain.so", "good/main"]
    assert [binary.link_variant for binary in compared] == [*["default"] * 4, "hidden"]
    output = "".join(capsys.readouterr())
    assert "broken" in output and "ld:" not in output
    assert "library" in output
    (default,) = compare_projects(recipes[1:2], *arguments, ("default",))
    assert default.link_variant == "default"
    with pytest.raises(UserError, match="broken, library"):
        compare_projects(recipes[1:], *arguments, ("hidden",))
    (twice,) = compare_projects(recipes[:1], *arguments, ("hidden", "hidden"))
    assert (twice.name, twice.link_variant) == ("main", "hidden")


def test_debian_package_that_does_not_build_is_left_out(
    tmp_path: Path, fake_builds: Toolchain, capsys: pytest.CaptureFixture[str]
) -> None:
    good = Recipe("good", Source("path", str(tmp_path)), binaries=("main",))
    packages = [Recipe(name, Source("deb", name), debian=True) for name in ("missing", "refused", "empty")]
    packages[1] = replace(packages[1], binaries=("main",))
    recipes = [*packages, good]
    binaries = compare_projects(recipes, Path("clang"), fake_builds, "inlining", tmp_path, tmp_path, 1, ("default",))
    assert [binary.project for binary in binaries] == ["good"]
    output = "".join(capsys.readouterr())
    assert "missing: " in output and "404" not in output
    assert "refused" in output
    assert "empty: " in output
    with pytest.raises(UserError, match="cannot be fetched"):
        recipe = Recipe("missing", Source("path", str(tmp_path)), binaries=("main",))
        compare_projects([recipe, good], Path("clang"), fake_builds, "inlining", tmp_path, tmp_path, 1, ("default",))


def test_release_clang_builds_without_and_with_the_plan(
    tmp_path: Path, fake_builds: Toolchain, built_with: list[list[str]]
) -> None:
    recipe = Recipe("good", Source("path", str(tmp_path)), binaries=("main",))
    plan, arguments = tmp_path / PLAN_FILE, ("inlining", tmp_path, tmp_path, 1, ("default",))
    (binary,) = compare_projects([recipe], Path("clang"), fake_builds, *arguments, plan)
    policy_flags = ["-Oz", "-mllvm", "-enable-ml-inliner=release"]
    assert built_with == [["-Oz"], policy_flags, [*policy_flags, *plan_flags(plan)]]
    assert binary.plan == binary.policy == binary.stock
    (binary,) = compare_projects([recipe], Path("clang"), fake_builds, *arguments)
    assert binary.plan is None and built_with[3:] == [["-Oz"], policy_flags, [*policy_flags, *HEURISTIC]]


@pytest.mark.toolchain
def test_failed_build_leaves_no_files(tmp_path: Path, recipe: Path, release: Path) -> None:
    (tmp_path / "source" / "CMakeLists.txt").write_text("this is no CMake\n")
    output = tmp_path / "out"
    done = evaluation("compare-binaries", "--recipe", recipe, "--release-toolchain", release, "--output", output)
    assert done.returncode == 1
    assert "unknown" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recipe.yaml", "source"]


@pytest.mark.parametrize(
    ("version_output", "message"),
    [
        ("clang version 18.1.8 (x)", r"18\.1\.8, the release clang 19\.1\.7"),
        ("gcc", "is no clang: --version says .gcc"),
    ],
)
def test_another_version_is_refused(tmp_path: Path, version_output: str, message: str) -> None:
    clang = tmp_path / "clang"
    clang.write_text(f"#!/bin/sh\necho '{version_output}'\n")
    clang.chmod(0o755)
    release = Toolchain(tmp_path, "release", "19.1.7", "x86_64-pc-linux-gnu", {}, {})
    with pytest.raises(UserError, match=message):
        require_same_version(clang, release)
