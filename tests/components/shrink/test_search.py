"""`mlgo shrink --minutes`: a search for the decisions of a build's files, with the clangs of the other tests."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from components.shrink.__main__ import main
from tests.components.shrink.test_shrink import SOURCES

pytestmark = [pytest.mark.toolchain, pytest.mark.tf]

CALLS = """
#include "table.h"
#include <algorithm>
static int scaled(const std::vector<int> &values, int factor) {
  int result = 0;
  for (int value : values) result += factor > 2 ? value * factor : value / (factor + 1);
  return result;
}
int Table::sum(const std::string &name) const {
  return scaled(rows.at(name), 1) + scaled(rows.at(name), 2) + scaled(rows.at(name), 3) + scaled(rows.at(name), 4);
}
void Table::add(const std::string &name, int value) {
  rows[name].push_back(value);
  std::sort(rows[name].begin(), rows[name].end());
}
"""


def test_static_library_gets_a_plan(
    pretrained_release: Path, training_toolchain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "library"
    source.mkdir()
    (source / "table.h").write_text(SOURCES["table.h"])
    (source / "table.cc").write_text(CALLS)
    (source / "Makefile").write_text("libtable.a: table.cc\n\t$(CXX) -O2 -c table.cc\n\tar rc $@ table.o\n")
    monkeypatch.setattr("components.shrink.search.training_clang", lambda: training_toolchain)
    monkeypatch.setattr("components.shrink.step.default_cache_dir", lambda: tmp_path / "cache")
    options = ["--source", source, "--release-toolchain", pretrained_release, "--output", tmp_path / "out"]
    done = CliRunner().invoke(
        main, [*map(str, options), "--minutes", "0.3", "--no-compare-stock", "--no-other-compilers"]
    )
    assert done.exit_code == 0, done.output
    builds = {build["name"]: build for build in json.loads((tmp_path / "out/shrink.json").read_text())["builds"]}
    assert list(builds) == ["own", "objects", "objects-plan"] and not builds["objects-plan"]["failure"]
    assert builds["objects-plan"]["stripped"] <= builds["objects"]["stripped"]
    (search,) = (tmp_path / "cache/shrink").glob("library-*/search")
    states = sorted(path.name for path in search.iterdir())
    again = CliRunner().invoke(
        main, [*map(str, options), "--minutes", "0.1", "--no-compare-stock", "--no-other-compilers"]
    )
    assert again.exit_code == 0, again.output
    assert sorted(path.name for path in search.iterdir()) == states, "the second search goes on from the first"
    if (tmp_path / "out/inline.plan").is_file():  # the plan is smaller, and its compilers build the same again
        copy = shutil.copytree(source, tmp_path / "again")
        line = builds["objects-plan"]["build"]
        subprocess.run(["sh", "-ec", f"{line}; make"], cwd=copy, check=True)
        assert (copy / "libtable.a").read_bytes() == (tmp_path / "out/files/libtable.a").read_bytes()


def test_program_gets_a_plan(
    pretrained_release: Path, training_toolchain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "program, with a comma"
    source.mkdir()
    for name in ("main.cc", "table.h"):
        (source / name).write_text(SOURCES[name])
    # Functions that only the whole program shows to be called once.
    calls = "".join(f"int step{i}(int x);\n" for i in range(40))
    calls += "int steps(int x) { return " + " + ".join(f"step{i}(x)" for i in range(40)) + "; }\n"
    steps = "".join(f"int step{i}(int x) {{ return x * {i} + (x >> {i % 7 + 1}); }}\n" for i in range(40))
    (source / "table.cc").write_text(CALLS + calls)
    (source / "steps.cc").write_text(steps)
    with (source / "main.cc").open("a") as stream:
        stream.write("int steps(int); int all = steps(3);\n")
    (source / "Makefile").write_text("app: *.cc\n\t$(CXX) -O2 main.cc table.cc steps.cc -o $@\n")
    monkeypatch.setattr("components.shrink.search.training_clang", lambda: training_toolchain)
    monkeypatch.setattr("components.shrink.step.default_cache_dir", lambda: tmp_path / "cache")
    options = ["--source", source, "--release-toolchain", pretrained_release, "--output", source / "out"]
    command = ["--minutes", "0.3", "--no-compare-stock", "--no-other-compilers", "--check", "./app", "make"]
    done = CliRunner().invoke(main, [*map(str, options), *command])
    assert done.exit_code == 0, done.output
    shrunk = json.loads((source / "out/shrink.json").read_text())
    builds = {build["name"]: build for build in shrunk["builds"]}
    assert list(builds) == ["own", "program", "objects", "program-plan"], done.output
    assert not builds["program-plan"]["failure"]
    assert builds["program-plan"]["searched"] and "use it with" not in done.output
    assert builds["program-plan"]["stripped"] <= builds["program"]["stripped"]
    if shrunk["chosen"] == "program-plan":
        assert (source / "out/inline.plan").is_file()
        script = (source / "out/compilers/clang++").read_text()
        assert f"-mlgo-inline-plan={source}/out/inline.plan" in script
