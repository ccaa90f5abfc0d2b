"""The programs of a user's build, linked again with real compilers: CMake's build with all kinds of libraries."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec import UNSET

from components.core.formats.corpus import load_corpus
from components.core.formats.links import read_links
from components.core.formats.toolchain import load_toolchain
from components.core.objectives import SIZE
from components.core.projects.recipe import PACKAGED
from components.evaluation.config import EvaluationConfig
from components.evaluation.projects.whole_projects import compare_own_build
from components.platform.errors import UserError
from tests.support.commands import run_command

SOURCES = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.16)
project(own LANGUAGES C CXX)
add_library(table SHARED table.cc)
set_target_properties(table PROPERTIES VERSION 1.2.3 SOVERSION 1)
add_library(words STATIC words.cc native.c)
set_source_files_properties(native.c PROPERTIES COMPILE_OPTIONS "-O2;-Xclang;-fembed-bitcode=off")
target_link_libraries(words PUBLIC table)
add_executable(app main.cc)
target_link_libraries(app words "-Wl,-Map=app.map")
add_executable(alone alone.c)
""",
    "table.h": """
#include <map>
#include <string>
#include <vector>
struct Table {
  void add(const std::string &name, int value);
  int sum(const std::string &name) const;
  std::map<std::string, std::vector<int>> rows;
};
std::vector<std::string> words(int count);
extern "C" int native(int);
""",
    "table.cc": """
#include "table.h"
void Table::add(const std::string &name, int value) { rows[name].push_back(value); }
int Table::sum(const std::string &name) const { int all = 0; for (int x : rows.at(name)) all += x; return all; }
""",
    "words.cc": """
#include "table.h"
#include <algorithm>
std::vector<std::string> words(int count) {
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) all.push_back("row" + std::to_string(native(i)));
  std::sort(all.begin(), all.end());
  return all;
}
""",
    "native.c": "int native(int x) { return x % 7; }\n",
    "alone.c": "int main(void) { return 0; }\n",
    "main.cc": """
#include "table.h"
#include <cstdio>
int main(int count, char **) {
  Table table;
  for (const std::string &word : words(20 * count)) table.add(word, 2);
  std::printf("%d\\n", table.sum("row1"));
}
""",
}


def stamps(directory: Path) -> dict[str, tuple[int, int]]:
    status = {str(path): path.lstat() for path in directory.rglob("*")}
    return {name: (one.st_mtime_ns, one.st_size) for name, one in status.items()}


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a user's tree `project`, built, and the `corpus` of it."""
    directory = tmp_path_factory.mktemp("own")
    source = directory / "project"
    source.mkdir()
    for name, text in SOURCES.items():
        (source / name).write_text(text)
    done = run_command("components.corpus", "compilers", "--output", directory / "oz")
    assert done.returncode == 0, done.stderr
    compilers = [f"-DCMAKE_{kind}_COMPILER={directory / 'oz' / name}" for kind, name in (("C", "cc"), ("CXX", "c++"))]
    configure: list[str | Path] = ["cmake", "-G", "Ninja", "-S", source, "-B", source / "build"]
    configure += ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    # With debug data, because valgrind does not read clang's.
    configure.append("-DCMAKE_BUILD_TYPE=RelWithDebInfo")
    subprocess.run([*configure, *compilers], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", source / "build"], check=True, capture_output=True)
    inputs = ("--compile-commands", source / "build" / "compile_commands.json", "--output", directory / "corpus")
    done = run_command("components.corpus", "extract", *inputs, "--cmd-filter", "^-Oz$")
    assert done.returncode == 0, done.stderr
    return directory


def compare(own: Path, release: Path, work: Path, **more: object):  # type: ignore[no-untyped-def]
    corpus = load_corpus(own / "corpus")
    config = EvaluationConfig(own, own, own, own, release_toolchain=release, **more)  # type: ignore[arg-type]
    return compare_own_build(SIZE, config, corpus, load_toolchain(release), work)


def with_links(own: Path, document: object, into: Path) -> Path:
    """Return a copy of `own` whose corpus has other links."""
    shutil.copytree(own / "corpus", into / "corpus")
    (into / "corpus" / "links.json").write_text(json.dumps(document))
    return into


@pytest.mark.toolchain
def test_programs_are_linked_again_and_the_tree_is_only_read(
    own: Path, pretrained_release: Path, tmp_path: Path
) -> None:
    before = stamps(own / "project")
    whole = compare(own, pretrained_release, tmp_path / "work", benchmark="./app one two | tee $BUILD/../said; test 1")
    assert stamps(own / "project").keys() - before.keys() == {str(own / "project" / "said")}
    (own / "project" / "said").unlink()
    assert {name: one for name, one in stamps(own / "project").items() if name != str(own / "project")} == {
        name: one for name, one in before.items() if name != str(own / "project")
    }
    binaries = {binary.name: binary for binary in whole.binaries.binaries}
    assert {name: binary.kind for name, binary in binaries.items()} == {
        "libtable.so.1.2.3": "shared library",
        "app": "program",
        "alone": "program",
    }
    build = whole.own_build
    assert build is not None and (build.source, build.need, build.left_out) == ("recorded", "", {})
    assert build.as_built == 3, "bitcode compiles to the code of the source"
    assert (build.modules, build.kept_objects) == (5, 0)
    assert binaries["app"].policy.text != binaries["app"].stock.text
    assert binaries["alone"].policy == binaries["alone"].stock
    total = whole.binaries.linked["default"]["all"]
    assert (total.files, total.stock.total) == (3, sum(binary.stock.total for binary in binaries.values()))
    plain = binaries["app"].heuristic
    assert plain is not UNSET and plain.text != binaries["app"].policy.text
    assert total.heuristic is not UNSET and total.policy_part_percent == pytest.approx(
        100 * (1 - total.policy.llvm_size_text / total.heuristic.llvm_size_text)
    )
    assert build.stock_s > 0 and build.policy_s > 0
    assert whole.programs is not None
    (program,) = whole.programs.programs
    assert program.stock.instructions > 100_000 < program.policy.instructions
    assert program.stock.instructions != program.policy.instructions, "each build runs its own program and library"


@pytest.mark.toolchain
def test_links_that_fail_are_left_out_with_their_reason(own: Path, pretrained_release: Path, tmp_path: Path) -> None:
    links = read_links(own / "corpus")
    assert links is not None
    document = json.loads((own / "corpus" / "links.json").read_text())
    for link in document["links"]:
        if link["output"].endswith("/app"):
            link["arguments"].append("-lmissing")
        if link["output"].endswith("/alone"):
            link["arguments"].append("-fplugin=evil.so")
            build = Path(link["directory"])
            gone = [str(build / word) if word.endswith(".o") else word for word in link["arguments"][:-1]]
    document["links"].append({**link, "directory": str(build / "gone"), "arguments": gone, "output": str(build / "g")})
    whole = compare(with_links(own, document, tmp_path / "own"), pretrained_release, tmp_path / "work")
    assert [binary.name for binary in whole.binaries.binaries] == ["libtable.so.1.2.3"]
    assert "missing" in whole.own_build.left_out["app"]
    refused = "its option -fplugin=evil.so could run a program: link without it to have this file compared"
    assert whole.own_build.left_out["alone"] == refused
    assert "not here" in whole.own_build.left_out["g"]


@pytest.mark.toolchain
def test_link_that_takes_too_long_is_left_out(
    own: Path, pretrained_release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("components.evaluation.projects.own_build._LINK_TIMEOUT_S", 1e-3)
    whole = compare(own, pretrained_release, tmp_path / "work")
    assert "0.001" in whole.own_build.left_out["app"]
    assert "more than" in whole.own_build.left_out["alone"]


@pytest.mark.toolchain
def test_strip_that_fails_is_an_error_of_the_benchmark(
    own: Path,
    pretrained_release: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("components.evaluation.benchmarks.own_benchmark._STRIP_TIMEOUT_S", 1e-3)
    whole = compare(own, pretrained_release, tmp_path / "work", benchmark="./app")
    assert len(whole.binaries.binaries) == 3 and whole.programs is None
    assert "stripped" in caplog.text


@pytest.mark.toolchain
def test_report_says_what_it_needs_where_the_tree_is_not(own: Path, pretrained_release: Path, tmp_path: Path) -> None:
    (own / "project").rename(own / "moved")
    try:
        whole = compare(own, pretrained_release, tmp_path / "work", benchmark="./app")
        assert whole.binaries.binaries == [] and whole.programs is None
        assert "not here" in whole.own_build.need
        with pytest.raises(UserError, match="no program"):
            compare(own, pretrained_release, tmp_path / "limited", benchmark="./app", max_slowdown_percent=1.0)
    finally:
        (own / "moved").rename(own / "project")


@pytest.mark.toolchain
def test_failing_benchmark_does_not_discard_the_sizes(
    own: Path, pretrained_release: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = compare(own, pretrained_release, tmp_path / "work", benchmark="./app; ./nothing")
    assert len(whole.binaries.binaries) == 3 and whole.programs is None
    assert "--benchmark" in caplog.text


def test_benchmark_is_not_for_recipes(tmp_path: Path) -> None:
    paths = dict.fromkeys(("corpus", "toolchain", "policy", "output", "release_toolchain"), tmp_path)
    cases: list[dict[str, Path | None]] = [{"recipe": PACKAGED / "tiny.yaml"}, {"release_toolchain": None}]
    for more in cases:
        with pytest.raises(UserError, match="--benchmark"):
            EvaluationConfig(**{**paths, **more}, benchmark="true")  # type: ignore[arg-type]
    assert EvaluationConfig(**paths, benchmark="true", time_repeats=3).benchmark  # type: ignore[arg-type]
