"""Corpora built from recipes of local projects: modules, counts, optimization levels, and the recipe's split."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from components.core.formats.corpus import load_corpus
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[4]
LISTS = """
cmake_minimum_required(VERSION 3.20)
project(toy C ASM)
add_library(toy STATIC one.c two.c stub.S bad.c)
set_source_files_properties(two.c PROPERTIES COMPILE_OPTIONS -O3)
"""
SOURCES = {
    "cmake/CMakeLists.txt": LISTS,
    "cmake/one.c": "int one(int a) { return a + 1; }\n",
    "cmake/two.c": "int two(int a) { return a + 2; }\n",
    "cmake/bad.c": "no C at all\n",
    "cmake/stub.S": ".text\n",
    "make/Makefile": "all:\n\t$(CC) $(CFLAGS) -c a.c -o a.o\n\t$(CC) $(CFLAGS) -c b.c -o b.o\n",
    "make/a.c": "int a(int x) { return x * 3; }\n",
    "make/b.c": "int b(int x) { return x * 5; }\n",
    "slow/Makefile": "all:\n\tsleep 1000\n",
    "busy/CMakeLists.txt": (
        "cmake_minimum_required(VERSION 3.16)\nproject(busy C)\n"
        "set(CMAKE_C_COMPILER_LAUNCHER sh ${CMAKE_SOURCE_DIR}/slowly)\n"
        "add_library(busy STATIC f1.c f2.c f3.c f4.c f5.c f6.c)\n"
    ),
    "busy/slowly": 'sleep 2; exec "$@"\n',
    **{f"busy/f{i}.c": f"int f{i};\n" for i in range(1, 7)},
}
RECIPES = {
    "with-cmake": {"name": "with-cmake", "source": {"path": "cmake"}, "cmake": {}},
    "with-make": {"name": "with-make", "source": {"path": "make"}, "commands": ["make"]},
    "slow": {"name": "slow", "source": {"path": "slow"}, "commands": ["make"]},
    "busy": {"name": "busy", "source": {"path": "busy"}, "cmake": {}},
    "lost": {"name": "lost", "source": {"path": "nowhere"}, "cmake": {}},
    "late": {"name": "late", "source": {"path": "cmake"}, "prepare": ["sleep 1000"], "cmake": {}},
}


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / "r" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, recipe in RECIPES.items():
        (tmp_path / f"r/{name}.yaml").write_text(yaml.safe_dump(recipe))
    document = {
        "projects": ["with-cmake.yaml", "with-make.yaml"],
        "split": {"heldout_projects": ["with-cmake"], "heldout_fraction": 0},
    }
    (tmp_path / "r/set.yaml").write_text(yaml.safe_dump(document))
    (tmp_path / "r/two.yaml").write_text(yaml.safe_dump({"projects": ["slow.yaml", "late.yaml"]}))
    (tmp_path / "r/doomed.yaml").write_text(yaml.safe_dump({"projects": ["busy.yaml", "lost.yaml"]}))
    return tmp_path / "r"


def command(recipe: Path, output: Path) -> list[str]:
    options = {"--recipe": recipe, "--output": output, "--cache-dir": output.parent / "cache", "--jobs": 2}
    words = [str(word) for pair in options.items() for word in pair]
    return [sys.executable, "-m", "components.corpus", "build", *words]


@pytest.mark.toolchain
def test_corpus_of_two_projects(recipes: Path, tmp_path: Path) -> None:
    run = subprocess.run(command(recipes / "set.yaml", tmp_path / "c"), cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    corpus = load_corpus(tmp_path / "c")
    assert [module.name for module in corpus] == [
        "with-cmake/CMakeFiles/toy.dir/one.c.o",
        "with-make/a.o",
        "with-make/b.o",
    ]
    assert all("-Oz" in module.arguments() for module in corpus)
    assert [module.project for module in corpus.split("heldout")] == ["with-cmake"]
    report = json.loads((tmp_path / "c/report.json").read_text())
    assert report["projects"]["with-cmake"] == {"extracted": 1, "filtered": 1, "assembly": 1, "compile_failed": 1}
    assert report["projects"]["with-make"] == {"extracted": 2}
    failed = next(item for item in report["left_out"] if item["kind"] == "compile_failed")
    assert "no C at" in Path(failed["detail"].split()[-1]).read_text()
    assert not list((tmp_path / "cache").glob("mlgo-build-*")), "build directories are removed"


PROGRAMS = {
    "cmake/CMakeLists.txt": "cmake_minimum_required(VERSION 3.20)\nproject(p C)\nadd_library(part STATIC part.c)\n"
    "add_library(api SHARED api.c)\nadd_executable(tool tool.c)\ntarget_link_libraries(tool part api)\n"
    "add_executable(generator generator.c)\ntarget_link_libraries(generator part)\n"
    "add_custom_command(OUTPUT made.h COMMAND generator > made.h DEPENDS generator)\n"
    "add_executable(other other.c ${CMAKE_BINARY_DIR}/made.h)\n"
    "target_include_directories(other PRIVATE ${CMAKE_BINARY_DIR})\n",
    "cmake/part.c": "int part(int a) { return a * 3; }\nint unused(int a) { return part(a); }\n",
    "cmake/api.c": "int api(int a) { return a + 1; }\n",
    "cmake/tool.c": "int part(int); int api(int);\nint main(int n, char **a) { return part(api(n)); }\n",
    "cmake/generator.c": "#include <stdio.h>\nint part(int);\n"
    'int main(void) { return printf("#define X %d\\n", part(2)) < 0; }\n',
    "cmake/other.c": '#include "made.h"\nint main(void) { return X; }\n',
    "make/Makefile": "all: both\n"
    "both: a.o b.o\n\t$(CC) $(LDFLAGS) a.o b.o -o both\n%.o: %.c\n\t$(CC) -O2 $(CFLAGS) -c $< -o $@\n",
    "make/a.c": "int b(int);\nint main(int n, char **a) { return b(n); }\n",
    "make/b.c": "int b(int x) { return x * 5; }\n",
    "library/CMakeLists.txt": "cmake_minimum_required(VERSION 3.20)\nproject(l C)\nadd_library(l STATIC l.c)\n",
    "library/l.c": "int l(int a) { return a; }\n",
}


@pytest.mark.toolchain
def test_programs_of_projects(tmp_path: Path) -> None:
    for name, text in PROGRAMS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    recipes: dict[str, dict[str, object]] = {
        "named": {"source": {"path": "cmake"}, "cmake": {}, "binaries": ["tool", "libapi.so"]},
        "all": {"source": {"path": "cmake"}, "cmake": {}},
        "made": {"source": {"path": "make"}, "commands": ["make"]},
        "library": {"source": {"path": "library"}, "cmake": {}},
    }
    for name, recipe in recipes.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"name": name, **recipe}))
    (tmp_path / "set.yaml").write_text(yaml.safe_dump({"projects": [f"{name}.yaml" for name in recipes]}))
    words = [*command(tmp_path / "set.yaml", tmp_path / "c"), "--unit", "program"]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert {module.name for module in load_corpus(tmp_path / "c")} == {
        "named/tool",
        "named/libapi.so",
        "all/tool",
        "all/libapi.so",
        "all/generator",
        "all/other",
        "made/both",
    }
    assert "library" in run.stderr + run.stdout
    report = json.loads((tmp_path / "c/report.json").read_text())
    assert report["shared_functions"]["all"] == {"in_several_programs": 3, "all": 4}


@pytest.mark.toolchain
def test_missing_source_stops_earlier_builds(recipes: Path, tmp_path: Path) -> None:
    run = subprocess.run(command(recipes / "doomed.yaml", tmp_path / "c"), cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1 and "nowhere" in run.stderr and "Traceback" not in run.stderr
    assert "6/6" not in run.stdout + run.stderr
    assert not (tmp_path / "c").exists() and not list((tmp_path / "cache").glob("mlgo-build-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_build_leaves_no_processes_or_directories(
    recipes: Path, tmp_path: Path, number: signal.Signals
) -> None:
    # One project is being built while the next one is being prepared.
    build = command(recipes / "two.yaml", tmp_path / "c")
    process = subprocess.Popen(build, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: _running_projects(tmp_path) == {"slow", "late"}, "both projects")
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + number and "Traceback" not in stderr
    assert not _running_projects(tmp_path)
    assert not (tmp_path / "c").exists() and not list(tmp_path.glob(".c.*"))
    assert not list((tmp_path / "cache").glob("mlgo-build-*"))


def _running_projects(below: Path) -> set[str]:
    """Return the projects below `below` in whose directories processes run."""
    projects = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and (directory := (entry / "cwd").resolve()).is_relative_to(below / "cache"):
                projects.add(directory.parent.name)
        except OSError:
            continue  # the process ended, or belongs to another user
    return projects
