"""Tests of rows of flags with real builds of a small program by clang and lld."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from components.core.compiler.probe import has_option
from components.core.compiler.source_language import Language
from components.core.formats.toolchain import Toolchain, load_toolchain
from components.core.projects.flags.build_variants import BuildVariant
from components.core.projects.flags.builds import (
    BuildSetup,
    MeasuredProgram,
    OwnBuild,
    describe_failure,
    find_binutils,
    make_project,
)
from components.core.projects.flags.compare import compare_flags, flags_csv, flags_totals, why_not_delivered
from components.core.projects.flags.rows import NO_PIE, ROW_NAMES, FlagRow, plan_rows
from components.core.projects.flags.types import CompilerOfRow, FlagsComparison, FlagsProgram, RowResult, RowSizes
from components.core.projects.recipe import Recipe, Source
from components.core.projects.source_tree import SourceTree
from components.evaluation.__main__ import main
from components.evaluation.metrics_types import SizeMetrics, encode_json
from components.evaluation.report import flags_tables
from components.evaluation.report.terminal_report import read_metrics
from components.platform.errors import UserError
from tests.components.toolchain.programs.test_linker import toolchain
from tests.components.toolchain.programs.test_variants import varied_code
from tests.support.commands import run_command

__all__ = ["toolchain"]

CLANG = Path("/usr/bin/clang-19")
MAIN = """
#include <cstdio>
#include <vector>
std::vector<int *> ints;
std::vector<long *> longs;
void fill(int count);
int main() {
  fill(3);
  std::printf("%zu\\n", ints.size() + longs.size());
  return ints.size() + longs.size() == 6 ? 0 : 1;
}
"""
FILL = """
#include <vector>
extern std::vector<int *> ints;
extern std::vector<long *> longs;
void fill(int count) {
  for (int i = 0; i < count; ++i) { ints.insert(ints.begin(), nullptr); longs.insert(longs.begin(), nullptr); }
}
int unused(int x) { int sum = 0; for (int i = 0; i < x; ++i) sum += i * i % 7; return sum; }
"""
BUILD = (
    "mkdir out; $CXX -O2 -c main.cpp -o out/main.o; c++ -O2 -c fill.cpp -o out/fill.o; $CXX out/*.o -o out/app; out/app"
)
"""Runs the program, so that one that misbehaves fails its row."""
CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(own CXX)
add_library(fill fill.cpp)
add_executable(app main.cpp)
target_link_libraries(app fill)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "main.cpp").write_text(MAIN)
    (directory / "fill.cpp").write_text(FILL)
    return directory


@pytest.fixture
def stock_only(tmp_path: Path) -> Toolchain:
    """A toolchain whose clang is stock clang: it has no policy and no pipeline of its own."""
    directory = tmp_path / "toolchain"
    (directory / "bin").mkdir(parents=True)
    for name in ("clang", "clang++"):
        (directory / "bin" / name).symlink_to(f"/usr/lib/llvm-19/bin/{name}")
    version = subprocess.run([CLANG, "-dumpversion"], capture_output=True, text=True, check=True).stdout.strip()
    return Toolchain(directory, "release", version, "x86_64-pc-linux-gnu", {"inlining": ()}, {})


@pytest.fixture
def setup(tmp_path: Path) -> BuildSetup:
    return BuildSetup(tmp_path / "work" / "build", tmp_path / "cache", 1, find_binutils(CLANG))


@pytest.fixture
def compare(stock_only: Toolchain, setup: BuildSetup) -> Callable[..., FlagsComparison]:
    """Build with stock clang under the named rows."""

    def run(project: OwnBuild, *names: str, compilers: tuple[CompilerOfRow, ...] = ("stock",)) -> FlagsComparison:
        rows = [replace(row, compilers=compilers) for row in plan_rows(stock_only, CLANG, names)]
        return compare_flags([project], rows, CLANG, stock_only, setup)

    return run


def stripped_bytes(program: FlagsProgram) -> dict[str, int]:
    return {result.row: result.sizes.stripped for result in program.results if result.sizes}


def test_rows_drop_fold_and_link_as_they_say(
    source: Path, compare: Callable[..., FlagsComparison], setup: BuildSetup, tmp_path: Path
) -> None:
    keep = f"{BUILD}; cp out/app {tmp_path}/kept-$(ls {tmp_path} | grep -c kept)"
    own = OwnBuild(SourceTree(source), keep, ("out/app",))
    compared = compare(own, "default", "hidden", "icf-all", "layout", "lto")
    (program,) = compared.programs
    assert (program.project, program.name, program.language) == ("project", "out/app", "c++")
    assert [(result.row, result.failure) for result in program.results] == [
        (row, "") for row in ("default", "hidden", "icf-all", "layout", "lto")
    ]
    sizes = {result.row: result.sizes for result in program.results if result.sizes}
    # gc drops `unused`; ICF folds vector<int *>'s and vector<long *>'s functions; LTO inlines across files.
    assert sizes["hidden"].text < sizes["default"].text
    assert sizes["icf-all"].text < sizes["hidden"].text
    assert sizes["layout"].stripped < sizes["icf-all"].stripped
    assert sizes["lto"].text < sizes["layout"].text
    # What llvm-strip and llvm-size say about the first build.
    subprocess.run(["llvm-strip-19", "-o", tmp_path / "stripped", tmp_path / "kept-0"], check=True)
    assert sizes["default"].stripped == (tmp_path / "stripped").stat().st_size
    text = subprocess.run(["llvm-size-19", tmp_path / "kept-0"], capture_output=True, text=True, check=True).stdout
    assert sizes["default"].llvm_size_text == int(text.splitlines()[1].split()[0])
    assert program.best == program.best_stock
    assert program.best.row == min(stripped_bytes(program), key=lambda row: stripped_bytes(program)[row])
    assert sorted(path.name for path in source.iterdir()) == ["fill.cpp", "main.cpp"]
    assert not list(setup.work.glob("*"))
    rows = list(csv.DictReader(flags_csv(compared).splitlines()))
    assert [row["row"] for row in rows] == ["default", "hidden", "icf-all", "layout", "lto"]
    assert {row["status"] for row in rows} == {"built"}
    assert int(rows[0]["unwind_bytes"]) == sizes["default"].unwind > 0
    # The line builds what was measured.
    (project,) = compared.projects
    assert project.row == program.best.row
    line = f"export {project.build}; $CXX $CXXFLAGS main.cpp fill.cpp $LDFLAGS -o {tmp_path}/by-hand"
    subprocess.run(["sh", "-ec", line], cwd=source, check=True)
    subprocess.run(["llvm-strip-19", tmp_path / "by-hand"], check=True)
    assert (tmp_path / "by-hand").stat().st_size == stripped_bytes(program)[project.row]


def test_a_row_that_does_not_link_fails_alone(source: Path, compare: Callable[..., FlagsComparison]) -> None:
    """A shared library of the build that marks nothing as visible has no symbols under -fvisibility=hidden."""
    command = "$CXX -fPIC -shared fill.cpp -Wl,--allow-shlib-undefined -o libfill.so; $CXX main.cpp libfill.so -o app"
    compared = compare(OwnBuild(SourceTree(source), command, ("app",)), "default", "icf-all")
    (program,) = compared.programs
    good, bad = program.results
    assert good.sizes and bad.sizes is None
    assert "undefined symbol" in bad.failure
    assert program.best.row == "default" and compared.projects[0].row == "default"
    assert "failed: " in flags_tables.row_rows(compared, program)[1][-1]
    assert list(csv.DictReader(flags_csv(compared).splitlines()))[1]["status"].startswith("failed: ")


def test_a_compiler_without_the_policy_fails_alone(source: Path, compare: Callable[..., FlagsComparison]) -> None:
    compared = compare(OwnBuild(SourceTree(source), BUILD, ("out/app",)), "default", compilers=("stock", "policy"))
    stock, policy = compared.programs[0].results
    assert stock.sizes and policy.sizes is None
    assert "Inlining Advisor" in policy.failure


def test_two_definitions_of_main_name_the_symbol(source: Path, compare: Callable[..., FlagsComparison]) -> None:
    (source / "other.cpp").write_text("int main() {}\n")
    with pytest.raises(UserError, match="project") as error:
        compare(OwnBuild(SourceTree(source), "$CXX main.cpp fill.cpp other.cpp -o app", ("app",)), "icf-all")
    assert "duplicate symbol" in error.value.problem


def test_program_that_the_build_does_not_make(source: Path, compare: Callable[..., FlagsComparison]) -> None:
    with pytest.raises(UserError, match="out/ap"):
        compare(OwnBuild(SourceTree(source), BUILD, ("out/ap",)), "default")
    compared = compare(OwnBuild(SourceTree(source), BUILD, ("out/app", "out/ap", "out/main.o")), "default")
    assert [program.name for program in compared.programs] == ["out/app"]


def test_relocatable_links_take_part_in_every_row(source: Path, compare: Callable[..., FlagsComparison]) -> None:
    command = "$CXX -c main.cpp fill.cpp; $CXX -r -nostdlib main.o fill.o -o both.o; $CXX both.o -o app; ./app"
    compared = compare(OwnBuild(SourceTree(source), command, ("app",)), "icf-all", "lto")
    assert [result.failure for result in compared.programs[0].results] == ["", ""]


def test_files_of_an_earlier_build_are_left_out(source: Path, compare: Callable[..., FlagsComparison]) -> None:
    (source / "build").mkdir()
    (source / "build" / "CMakeCache.txt").write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere\n")
    (source / "app").write_text("an old program")
    own = OwnBuild(SourceTree(source), f"test ! -e build; test ! -e app; {BUILD}; cp out/app app", ("app",))
    own.check()
    assert compare(own, "default").programs[0].best.sizes


@pytest.mark.parametrize("program", ["/usr/bin/env", "../app"])
def test_programs_outside_of_the_tree_are_refused(source: Path, program: str) -> None:
    with pytest.raises(UserError, match="outside"):
        OwnBuild(SourceTree(source), BUILD, (program,)).check()


def test_rows_that_assume_something_need_permission(stock_only: Toolchain) -> None:
    names = [row.name for row in plan_rows(stock_only, CLANG)]
    assert NO_PIE not in names and "program" not in names
    with pytest.raises(UserError, match="no-pie"):
        plan_rows(stock_only, CLANG, [NO_PIE])
    with pytest.raises(UserError, match="program"):
        plan_rows(stock_only, CLANG, ["program"])
    with pytest.raises(UserError, match="'lot'") as error:
        plan_rows(stock_only, CLANG, ["lot"])
    assert all(name in error.value.remedy for name in ROW_NAMES)
    allowed = {row.name: row for row in plan_rows(stock_only, CLANG, allowed=[NO_PIE])}
    assert "-no-pie" in allowed[NO_PIE].link_flags and "-no-pie" in allowed["lto"].link_flags
    assert "-no-pie" not in allowed["layout"].link_flags
    with pytest.raises(UserError, match="inlining"):
        plan_rows(replace(stock_only, features={}), CLANG)


def test_experimental_rows_need_the_option(stock_only: Toolchain) -> None:
    with pytest.raises(UserError, match="own tests") as e:
        plan_rows(stock_only, CLANG, ["program-smallest-experimental"])
    assert "--experimental" in e.value.remedy
    with pytest.raises(UserError, match="smallest-experimental"):
        plan_rows(stock_only, CLANG, ["smallest-experimental"], experimental=True)


@pytest.mark.toolchain
def test_experimental_rows_compile_more_variants(toolchain: Path, source: Path, setup: BuildSetup) -> None:
    (source / "app.c").write_text(varied_code())
    release, own = load_toolchain(toolchain), OwnBuild(SourceTree(source), "$CC app.c -o app; ./app", ("app",))
    names = ["smallest", "program-smallest"]
    assert [row.name for row in plan_rows(release, CLANG) if "smallest" in row.name] == names
    rows = [row for row in plan_rows(release, CLANG, experimental=True) if "smallest" in row.name]
    assert [row.name for row in rows] == [*names, *(f"{name}-experimental" for name in names)]
    (program,) = compare_flags([own], rows, CLANG, release, setup).programs
    assert [(result.row, result.failure) for result in program.results] == [(row.name, "") for row in rows]
    sizes = {result.row: result.sizes for result in program.results if result.sizes}
    for name in names:
        assert sizes[f"{name}-experimental"].text < sizes[name].text


def test_safe_folding_is_that_of_all_later_rows(stock_only: Toolchain) -> None:
    rows = {row.name: row for row in plan_rows(stock_only, CLANG, icf="safe")}
    assert "-Wl,--icf=all" in rows["icf-all"].link_flags
    for name in ("layout", "thinlto", "lto"):
        assert "-Wl,--icf=safe" in rows[name].link_flags and "-Wl,--icf=all" not in rows[name].link_flags
        assert not any("addresses" in assumption for assumption in rows[name].assumes)


def test_options_reach_the_link_of_lto_only(stock_only: Toolchain) -> None:
    rows = {row.name: row for row in plan_rows(stock_only, CLANG)}
    policy = "-Wl,-mllvm,-enable-ml-inliner=release"
    assert policy in rows["lto"].variant("policy", CLANG, stock_only).link_flags
    assert policy not in rows["lto"].variant("stock", CLANG, stock_only).link_flags
    assert policy not in rows["layout"].variant("policy", CLANG, stock_only).link_flags
    assert "-enable-ml-inliner=release" in rows["layout"].variant("policy", CLANG, stock_only).flags
    (stock_only.directory / "lib").mkdir()
    (stock_only.directory / "lib" / "mlgo-inliner.so").touch()
    loaded = f"-Wl,--load-pass-plugin={stock_only.directory}/lib/mlgo-inliner.so"
    link_flags = rows["lto"].variant("policy", CLANG, stock_only).link_flags
    assert link_flags.index(loaded) < link_flags.index(policy)
    assert loaded not in rows["lto"].variant("stock", CLANG, stock_only).link_flags
    assert loaded not in rows["layout"].variant("policy", CLANG, stock_only).link_flags
    own = FlagRow("lto", "", lto=True, own_options=("-mlgo-whole-program=0",))
    assert "-Wl,-mllvm,-mlgo-whole-program=0" in own.variant("heuristic", CLANG, stock_only).link_flags
    assert "-mlgo-whole-program=0" not in own.variant("stock", CLANG, stock_only).flags


def test_other_compilers_have_the_flags_that_they_know(stock_only: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    assert not [row for row in plan_rows(stock_only, CLANG) if row.compilers == ("gcc",)]
    rows = {row.name: row for row in plan_rows(stock_only, CLANG, allowed=[NO_PIE], other_compilers=True)}
    gcc = rows["gcc-Oz"]
    assert gcc.program == Path("/usr/bin/gcc") and gcc.compile_flags[0] == "-Oz"
    assert {"-fvisibility=hidden", "-fno-pie", "-flto=auto"} < set(gcc.compile_flags)
    assert {"-Wl,--gc-sections", "-Wl,-z,pack-relative-relocs", "-no-pie"} < set(gcc.link_flags)
    assert not any("lld" in flag or "icf" in flag or flag == "-flto" for flag in gcc.link_flags)
    assert not any("addresses" in assumption and "functions" in assumption for assumption in gcc.assumes)
    assert rows["newest"].program == Path("/usr/bin/clang-22") and rows["newest"].link_flags == rows["lto"].link_flags
    monkeypatch.setenv("PATH", "/nowhere")
    for name, needed in {"gcc-Os": "a gcc", "newest": "a clang newer than 19"}.items():
        with pytest.raises(UserError, match=f"the row {name} needs {needed}"):
            plan_rows(stock_only, CLANG, [name], other_compilers=True)


def test_gcc_builds_own_builds_and_recipes(source: Path, stock_only: Toolchain, setup: BuildSetup) -> None:
    (source / "CMakeLists.txt").write_text(CMAKE)
    recipe = make_project(Recipe("own", Source("path", str(source)), cmake_options=(), binaries=("app",)))
    assert recipe is not None
    build = f"test $AR = $(command -v ar); {BUILD}"
    rows = plan_rows(stock_only, CLANG, ["icf-all", "gcc-Oz", "newest"], other_compilers=True)
    rows = [replace(row, compilers=tuple(one for one in row.compilers if one != "policy")) for row in rows]
    compared = compare_flags(
        [OwnBuild(SourceTree(source), build, ("out/app",)), recipe], rows, CLANG, stock_only, setup
    )
    for program in compared.programs:
        assert [(result.row, result.failure) for result in program.results] == [
            (row, "") for row in ("icf-all", "gcc-Oz", "newest")
        ]
        assert program.best.compiler != "stock"
        assert all(result.sizes and 0 < result.sizes.loaded < result.sizes.stripped for result in program.results)
    (line,) = {each.build for each in compare_flags([recipe], rows[1:2], CLANG, stock_only, setup).projects}
    assert line.startswith("CC=/usr/bin/gcc CXX=/usr/bin/g++ CFLAGS='-Oz -fvisibility=hidden")
    assert line.endswith(" AR=/usr/bin/gcc-ar NM=/usr/bin/gcc-nm RANLIB=/usr/bin/gcc-ranlib")


def test_option_is_known_by_asking_the_clang() -> None:
    assert has_option(CLANG, "-enable-machine-outliner") is False  # takes words, not 0
    assert has_option(CLANG, "-inline-threshold")
    assert not has_option(CLANG, "-mlgo-whole-program")


def row_result(row: str, compiler: CompilerOfRow, size: int, text: int) -> RowResult:
    return RowResult(row=row, compiler=compiler, sizes=RowSizes(stripped=size, text=text))


def test_totals_compare_the_best_with_the_best_row_of_stock_clang() -> None:
    def program(name: str, language: Language, stock: tuple[int, int] | None, size: tuple[int, int]) -> FlagsProgram:
        best_stock = None if stock is None else row_result("lto", "stock", *stock)
        best = row_result("icf-all", "policy", *size)
        return FlagsProgram(project="p", name=name, language=language, results=[], best_stock=best_stock, best=best)

    programs = [
        program("a", "c++", (1000, 500), (900, 510)),
        program("b", "c++", (3000, 1000), (2940, 990)),
        program("c", "c", (500, 100), (500, 100)),
        program("d", "c", None, (500, 100)),  # no row of stock clang: nothing to compare with
    ]
    totals = flags_totals(programs)
    assert list(totals) == ["all", "c", "c++"]
    cxx = totals["c++"]
    assert (cxx.programs, cxx.best_stock.stripped, cxx.best.stripped) == (2, 4000, 3840)
    assert cxx.reduction_percent == pytest.approx(4.0)
    assert cxx.median_reduction_percent == pytest.approx(6.0)
    assert cxx.text_reduction_percent == pytest.approx(0.0)
    assert totals["c"].programs == 1 and totals["c"].reduction_percent == 0
    assert totals["all"].programs == 3
    lines = flags_tables.total_lines(FlagsComparison(programs=programs, totals=totals))
    assert "stripped files 4.00% smaller (4,000 to 3,840 bytes, median 6.00% smaller), .text same" in lines[2]


def test_what_is_not_smaller_in_sum_is_not_delivered() -> None:
    def program(name: str, stock: int, policy: int, plan: int | None) -> FlagsProgram:
        results = [row_result("lto", "stock", stock, 0), row_result("icf-all", "policy", policy, 0)]
        results.append(RowResult(row="icf-all", compiler="plan", failure="error: x"))
        if plan is not None:
            results.append(row_result("lto", "plan", plan, 0))
        return FlagsProgram(project="p", name=name, language="c", results=results, best_stock=None, best=results[0])

    both = FlagsComparison(programs=[program("a", 1000, 900, 950), program("b", 2000, 2100, 1990)])
    assert why_not_delivered(both, "plan") is None
    assert why_not_delivered(both, "plan", against="policy") is None
    assert "p/b grows most, by 100 bytes" in why_not_delivered(both, "policy")
    assert "no program" in why_not_delivered(both, "heuristic")
    failed = FlagsComparison(programs=[program("a", 1000, 900, None)])
    assert "p/a" in why_not_delivered(failed, "plan")


class Prepared:
    """A project whose builds have the given sizes of two programs; None fails."""

    name = "p"

    def __init__(self, sizes: dict[str, tuple[RowSizes | None, RowSizes]]) -> None:
        self.sizes = sizes

    def build(self, variant: BuildVariant, setup: BuildSetup) -> dict[str, MeasuredProgram | str]:
        first, second = self.sizes[variant.title.rpartition(", ")[2]]
        one: MeasuredProgram | str = "ld.lld: error: undefined symbol: f"
        if first:
            one = MeasuredProgram(first, "c")
        return {"one": one, "two": MeasuredProgram(second, "c")}


def test_line_is_that_of_the_row_which_is_smallest_in_sum(stock_only: Toolchain, setup: BuildSetup) -> None:
    """layout cannot build one of the programs; lto and thinlto have equal files, since files are padded."""
    sizes = {
        "layout": (None, RowSizes(stripped=100, text=50)),
        "thinlto": (RowSizes(stripped=900, text=500), RowSizes(stripped=400, text=200)),
        "lto": (RowSizes(stripped=900, text=490), RowSizes(stripped=400, text=200)),
        "icf-all": (RowSizes(stripped=800, text=480), RowSizes(stripped=700, text=300)),
    }
    rows = [replace(row, compilers=("stock",)) for row in plan_rows(stock_only, CLANG, list(sizes))]
    compared = compare_flags([Prepared(sizes)], rows, CLANG, stock_only, setup)
    assert [program.best.row for program in compared.programs] == ["icf-all", "layout"]
    (project,) = compared.projects
    assert (project.row, project.compiler) == ("lto", "stock")
    assert "LDFLAGS=" in project.build and "-flto" in project.build and "llvm-ar" in project.build


def test_failure_is_the_line_with_the_error() -> None:
    log = "make ends with status 2:\ncc -c x.c\nx.c:3:1: error: expected ';'\nmake: *** [x.o] Error 1"
    assert "expected ';'" in describe_failure(UserError(log))
    assert "p cannot" in describe_failure(UserError("p cannot be fetched"))
    cmake = "make ends with status 1:\nCMake Error at x.cmake:230 (message):\n  Could NOT find {}\nCall Stack ...\n"
    assert describe_failure(UserError(cmake.format("ZLIB"))) == "Could NOT find ZLIB"
    assert describe_failure(UserError(cmake.format("OpenMP_C"))).endswith("such as libomp-19-dev")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "exactly one of --recipe and --build"),
        (["--recipe", "ninja", "--build", "make"], "exactly one of --recipe and --build"),
        (["--build", "make"], "--build needs --source and --program"),
        (["--build", "make", "--source", "/nowhere", "--program", "a"], "--source /nowhere is no directory"),
        (["--recipe", "ninja", "--program", "a"], "--source, --program and --exclude belong to --build"),
        (["--recipe", "jsoncpp"], "no recipe of jsoncpp names a program"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, arguments: list[str], problem: str) -> None:
    output = tmp_path / "flags"
    common = ["--release-toolchain", str(tmp_path), "--output", str(output)]
    done = CliRunner().invoke(main, ["flags", *arguments, *common], standalone_mode=False)
    assert isinstance(done.exception, UserError) and problem in done.exception.problem
    assert not output.exists()


@pytest.mark.toolchain
def test_command_publishes_rows_of_a_recipe_and_of_an_own_build(tmp_path: Path, source: Path, release: Path) -> None:
    (source / "CMakeLists.txt").write_text(CMAKE)
    recipe = tmp_path / "own.yaml"
    recipe.write_text(f"name: own\nsource: {{path: {source}}}\ncmake: {{}}\nbinaries: [app]\n")
    rows = [word for name in ("layout", "lto") for word in ("--row", name)]

    def flags(output: Path, *arguments: str) -> tuple[FlagsComparison, str]:
        words = [*arguments, *rows, "--release-toolchain", str(release), "--jobs", "1", "--output", str(output)]
        done = run_command("components.evaluation", "flags", *words, cwd=source, timeout=600)
        assert done.returncode == 0, done.stderr
        assert sorted(path.name for path in output.iterdir()) == ["flags.csv", "flags.json", "manifest.json"]
        document = (output / "flags.json").read_bytes()
        assert json.loads(document) == json.loads(encode_json(msgspec.json.decode(document, type=FlagsComparison)))
        return msgspec.json.decode(document, type=FlagsComparison), done.stdout

    built, _ = flags(tmp_path / "recipe", "--recipe", str(recipe))
    (program,) = built.programs
    sizes = {(result.row, result.compiler): result.sizes for result in program.results}
    assert all(sizes.values()), program.results
    # The policy never inlines, in compiles and at the link.
    for row in ("layout", "lto"):
        stock, policy = sizes[row, "stock"], sizes[row, "policy"]
        assert stock and policy and stock.text != policy.text
    command = "cmake -S . -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build"
    # The output is in the source tree, and a later run leaves it out by its name.
    own, text = flags(source / "runs", "--build", command, "--source", ".", "--program", "build/app")
    assert "the build" in text and "best stock" in text
    for result in own.programs[0].results:
        by_recipe = sizes[result.row, result.compiler]
        assert result.sizes and by_recipe and abs(result.sizes.text - by_recipe.text) < 64


@pytest.mark.toolchain
def test_evaluation_reports_the_rows_that_it_is_asked_for(
    tmp_path: Path, source: Path, corpus_directory: Path, training_toolchain: Path, never: Path, release: Path
) -> None:
    (source / "CMakeLists.txt").write_text(CMAKE)
    recipe, output = tmp_path / "own.yaml", tmp_path / "evaluation"
    recipe.write_text(f"name: unknown\nsource: {{path: {source}}}\ncmake: {{}}\nbinaries: [app]\n")
    words = ["--corpus", corpus_directory, "--toolchain", training_toolchain, "--release-toolchain", release]
    words += ["--policy", never, "--recipe", recipe, "--link-variant", "default", "--thresholds", "", "--jobs", "1"]
    done = run_command("components.evaluation", *words, "--flag-rows", "layout", "--output", output, timeout=600)
    assert done.returncode == 0, done.stderr
    metrics = read_metrics(output)
    assert isinstance(metrics, SizeMetrics) and isinstance(metrics.flags, FlagsComparison)
    built = {(result.row, result.compiler) for result in metrics.flags.programs[0].results if result.sizes}
    assert built - {("layout", "heuristic")} == {("layout", "stock"), ("layout", "policy")}
    assert "unknown/app" in done.stdout
    assert "Smallest build" in (output / "report.html").read_text()
    assert not (output / "build").exists()
