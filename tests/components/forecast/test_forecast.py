"""`mlgo forecast`: real compiles by stock clang and by a release clang, real links, and what is said of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.core.formats.corpus import Corpus
from tests.support.commands import run_command

pytestmark = pytest.mark.toolchain

STORE = """
#include <map>
#include <string>
#include <vector>
struct Store {
  void add(const std::string &name, int value) { rows[name].push_back(value); }
  int sum(const std::string &name) const { int all = 0; for (int x : rows.at(name)) all += x; return all; }
  std::map<std::string, std::vector<int>> rows;
};
"""
SOURCES = {
    "first.cc": STORE
    + "int first(Store &s, const std::string &n) { s.add(n, 1); s.add(n + n, 2); return s.sum(n); }\n",
    "second.cc": STORE
    + "int second(Store &s, const std::string &n) { s.add(n, 3); return s.sum(n) + s.sum(n + n); }\n",
    "plain.c": "int put(int); int plain(int x) { return put(x) + put(x + 1); }\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A configured project that was never built, by gcc with an option that clang does not have."""
    directory = tmp_path / "project"
    directory.mkdir()
    for name, text in SOURCES.items():
        (directory / name).write_text(text)
    write_database(directory, SOURCES)
    return directory


def write_database(directory: Path, sources: Any) -> None:
    flags = {".cc": "g++ -fipa-pta -fno-ipa-cp-clone -O2", ".c": "gcc -O2"}
    entries = [
        {
            "directory": str(directory),
            "file": name,
            "command": f"{flags[Path(name).suffix]} -MD -c {name} -o {Path(name).stem}.o",
        }
        for name in sources
    ]
    (directory / "compile_commands.json").write_text(json.dumps(entries))


def forecast(release: Path, *arguments: object) -> tuple[dict[str, Any], str]:
    """Run the command in a temporary directory, and return the figures and the output."""
    document = Path(str(arguments[1])).parent / "forecast.json"
    done = run_command("components.forecast", *arguments, "--release-toolchain", release, "--json", document)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(document.read_text()), done.stdout


def test_sources_and_their_corpus_have_the_same_sizes(
    project: Path, pretrained_release: Path, make_corpus: Callable[[Path, dict[str, str]], Corpus], tmp_path: Path
) -> None:
    before = sorted(project.iterdir())
    of_sources, output = forecast(pretrained_release, "--compile-commands", project)
    assert sorted(project.iterdir()) == before
    assert "all 3 modules" in output and "unlike LLVM's heuristic" in output
    assert "links of" in output and "linking the files" not in output
    corpus = make_corpus(tmp_path / "corpus", SOURCES)
    of_corpus, _output = forecast(pretrained_release, "--corpus", corpus.directory)
    for key in ("objects", "languages", "linked", "decisions", "departures", "discardable_percent", "advice"):
        assert of_sources[key] == of_corpus[key], key
    assert of_sources["decisions"] > of_sources["departures"] > 0
    assert {name: part["modules"] for name, part in of_sources["languages"].items()} == {"c": 1, "c++": 2}


def test_order_of_compiles_does_not_change_sizes(project: Path, pretrained_release: Path) -> None:
    linked = [
        forecast(pretrained_release, "--compile-commands", project, "--jobs", 2, "--seed", seed)[0]["linked"]
        for seed in range(4)
    ]
    assert linked == [linked[0]] * 4


def test_inline_functions_of_several_modules_are_linked_once(
    project: Path, pretrained_release: Path, clang: Path
) -> None:
    figures, _output = forecast(pretrained_release, "--compile-commands", project)
    objects, linked = figures["objects"], figures["linked"]
    assert 0 < linked["machine_code"]["stock"] < 0.8 * objects["machine_code"]["stock"]
    assert figures["discardable_percent"] > 50
    assert linked["margin"] == 0 and figures["not_linked"] == ""
    # What is measured is what the same objects are by clang itself.
    for name in ("first", "second"):
        subprocess.run([clang, "-Oz", "-c", f"{name}.cc"], cwd=project, check=True)
    subprocess.run([clang, "-Oz", "-c", "plain.c"], cwd=project, check=True)
    sizes = subprocess.run(
        ["llvm-size-19", "first.o", "second.o", "plain.o"], cwd=project, capture_output=True, text=True
    )
    text = sum(int(line.split()[0]) for line in sizes.stdout.splitlines()[1:])
    assert objects["text"]["stock"] == text


def test_external_functions_are_not_discardable(project: Path, pretrained_release: Path) -> None:
    write_database(project, ["plain.c"])
    figures, output = forecast(pretrained_release, "--compile-commands", project)
    assert figures["discardable_percent"] == 0 and figures["functions"] == 1
    assert figures["objects"]["text"]["stock"] == figures["objects"]["text"]["policy"] > 0
    assert "no gain" in output


def test_module_that_does_not_compile_is_named(project: Path, pretrained_release: Path, tmp_path: Path) -> None:
    (project / "plain.c").write_text("#include <no-such-header.h>\n")
    figures, output = forecast(pretrained_release, "--compile-commands", project)
    assert list(figures["failed"]) == ["plain.o"] and figures["objects"]["modules"] == 2
    assert "plain.o" in output and "no-such-header.h" in output
    write_database(project, ["plain.c"])
    arguments = "--compile-commands", project, "--release-toolchain", pretrained_release
    done = run_command("components.forecast", *arguments, "--json", tmp_path / "none.json")
    assert done.returncode == 1 and "none of" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "none.json").exists()


def test_short_time_compiles_a_sample(project: Path, pretrained_release: Path) -> None:
    names = []
    for number in range(30):
        names.append(f"n{number}.cc")
        (project / names[-1]).write_text(STORE + f'int f{number}(Store &s) {{ s.add("x", {number}); return 1; }}\n')
    write_database(project, names)
    arguments = "--compile-commands", project, "--seconds", 1, "--jobs", 2
    figures, output = forecast(pretrained_release, *arguments, "--seed", 5)
    assert 1 <= figures["objects"]["modules"] < 30 and figures["modules"] == 30
    assert f"{figures['objects']['modules']} of 30 modules" in output
    margin = figures["linked"]["margin"]
    assert margin is None if figures["objects"]["modules"] < 4 else 0 <= margin < 100


def test_sample_that_is_too_small_has_no_interval(project: Path, pretrained_release: Path) -> None:
    (project / "plain.c").write_text("#include <no-such-header.h>\n")
    figures, output = forecast(pretrained_release, "--compile-commands", project)
    assert figures["linked"]["margin"] is None
    assert "nothing certain" in output and "2 of 3 modules" in output and "1 of the 3 modules" in output


def test_module_whose_directory_is_gone_is_named(project: Path, pretrained_release: Path) -> None:
    database = json.loads((project / "compile_commands.json").read_text())
    database[0]["directory"] = str(project / "gone")
    (project / "compile_commands.json").write_text(json.dumps(database))
    figures, _output = forecast(pretrained_release, "--compile-commands", project)
    assert list(figures["failed"].values()) == [f"{project / 'gone'}: No such file or directory"]


def test_no_scratch_files_remain(project: Path, pretrained_release: Path, tmp_path: Path) -> None:
    scratch = tmp_path / 'of "mine"'
    scratch.mkdir()
    done = run_command(
        "components.forecast",
        *("--compile-commands", project, "--release-toolchain", pretrained_release),
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    assert done.returncode == 0, done.stderr
    assert "linked together" in done.stdout
    assert list(scratch.iterdir()) == []


def test_objects_of_one_name_in_two_directories_fail_each(project: Path, pretrained_release: Path) -> None:
    entries = json.loads((project / "compile_commands.json").read_text())
    for name in ("one", "two"):
        (project / name).mkdir()
        (project / name / "a.c").write_text("#include <no-such-header.h>\n")
        entries.append({"directory": name, "file": "a.c", "arguments": ["cc", "-c", "a.c"]})
    (project / "compile_commands.json").write_text(json.dumps(entries))
    figures, _output = forecast(pretrained_release, "--compile-commands", project)
    assert sorted(figures["failed"]) == ["one/a.o", "two/a.o"]


def test_object_of_another_format_is_named_in_one_line(project: Path, pretrained_release: Path) -> None:
    (project / "none.c").write_text("int none(void) { return 1; }\n")
    entries = json.loads((project / "compile_commands.json").read_text())
    entries.append({"directory": ".", "file": "none.c", "command": "x86_64-w64-mingw32-gcc -c none.c"})
    (project / "compile_commands.json").write_text(json.dumps(entries))
    figures, _output = forecast(pretrained_release, "--compile-commands", project)
    assert list(figures["failed"]) == ["none.o"]
    assert "not an ELF file" in figures["failed"]["none.o"] and "\n" not in figures["failed"]["none.o"]


def test_each_program_is_linked_as_ninja_links_it(project: Path, pretrained_release: Path) -> None:
    main = "int main(int n, char **) { Store s; return n > 1 ? second(s, {}) : 0; }"
    main = f"int second(Store &, const std::string &); {main}"
    (project / "large.cc").write_text(STORE + main)
    (project / "small.c").write_text(
        "int plain(int); int put(int x) { return x; } int main(void) { return plain(1); }\n"
    )
    names = [*SOURCES, "large.cc", "small.c"]
    write_database(project, names)
    objects = "".join(f"build {Path(name).stem}.o: cc {name}\n" for name in names)
    (project / "build.ninja").write_text(
        "rule cc\n  command = cc -c $in -o $out\nrule link\n  command = c++ $in -o $out\n"
        f"rule ar\n  command = rm -f $out && ar qc $out $in\n{objects}"
        "build libcommon.a: ar first.o second.o plain.o\n"
        "build large: link large.o libcommon.a\nbuild small: link small.o libcommon.a\n"
    )
    figures, output = forecast(pretrained_release, "--compile-commands", project)
    assert figures["links"] == "ninja" and [file["name"] for file in figures["files"]] == ["large", "small"]
    large, small = (file["bytes"] for file in figures["files"])
    assert figures["linked"]["bytes"] == {key: large[key] + small[key] for key in ("stock", "policy", "release")}
    # Of the library, small needs the module of C alone, and large only second.cc.
    assert small["stock"] < 3_000 and small["policy"] == small["stock"]
    assert large["stock"] > 2 * small["stock"] and large["policy"] < large["stock"]
    assert "ninja links" in output and "linked files" in output
    (project / "build.ninja").unlink()
    together, output = forecast(pretrained_release, "--compile-commands", project)
    assert together["links"] == "none" and together["files"] == []
    assert together["linked"]["bytes"]["stock"] != figures["linked"]["bytes"]["stock"]
    assert "links of" in output


@pytest.mark.parametrize("arguments", [(), ("--corpus", "{corpus}", "--compile-commands", "{project}")])
def test_exactly_one_input_is_needed(arguments: tuple[str, ...], project: Path, tiny_corpus: Corpus) -> None:
    given = [word.format(corpus=tiny_corpus.directory, project=project) for word in arguments]
    done = run_command("components.forecast", *given)
    assert done.returncode == 1 and "exactly one" in done.stderr
