"""Programs that run: a small project, built by clang-19 and by a release clang, its instructions counted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.core.console import UserError
from components.core.formats.toolchain import Toolchain
from components.core.projects.build import build_project
from components.core.projects.recipe import load_recipes
from components.core.projects.source import fetch_recipe
from components.evaluation.benchmarks import benchmark_runner
from components.evaluation.benchmarks.benchmark_comparison import Figures, Program, compare_programs, summarize_programs
from components.evaluation.benchmarks.benchmark_runner import Run, make_inputs, run_benchmarks
from components.evaluation.benchmarks.counters import Counter
from components.evaluation.report.terminal_report import print_programs

CLANG = Path(shutil.which("clang-19") or "clang-19")
CALLGRIND = Counter("callgrind", Path(shutil.which("valgrind") or "valgrind"), 1, parallel=True)
REVERSE = """
#include <stdio.h>
#include <stdlib.h>
static int at(const char *text, int place) { return text[place] ^ 0; }
static unsigned mixed(unsigned sum, int next) { return sum * 31 + next; }
int main(int count, char **words) {
  static char text[1 << 20];
  FILE *from = count > 1 ? fopen(words[1], "r") : stdin, *to = count > 2 ? fopen(words[2], "w") : stdout;
  int length = fread(text, 1, sizeof text, from);
  unsigned sum = 0;
  for (int i = length - 1; i >= 0; --i) {
    fputc(at(text, i), to);
    sum = mixed(sum, at(text, i));
  }
#ifdef WRONG
  sum += 1;
#endif
  printf("%u\\n", sum);
  if (length == 3) return 7;
  if (length == 4) abort();
  if (length == 5) for (;;) fflush(to);
  return 0;
}
"""
TURN = {
    "name": "turn",
    "program": "reverse",
    "arguments": ["{input}", "{output}"],
    "input": {"files": ["reverse.*"], "bytes": 30000},
}
BACK = {"name": "back", "program": "reverse", "input": {"output_of": "turn"}, "stdin": True}


def text(content: str) -> dict[str, Any]:
    return {**TURN, "name": "text", "input": {"text": content}}


@pytest.fixture
def make_recipe(tmp_path: Path) -> Callable[..., Path]:
    def make(*benchmarks: dict[str, Any]) -> Path:
        source = tmp_path / "source"
        source.mkdir(exist_ok=True)
        (source / "reverse.c").write_text(REVERSE)
        document = {
            "name": "unknown",
            "source": {"path": str(source)},
            "commands": ["$CC $CFLAGS -c reverse.c -o reverse.o", "$CC reverse.o -o reverse", "cp reverse reverse-too"],
            "benchmarks": list(benchmarks),
        }
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return make


def build_and_run(path: Path, directory: Path, counter: Counter = CALLGRIND) -> list[Run]:
    """Builds a recipe with clang-19 in directory/work and runs its benchmarks in directory/benchmarks."""
    recipe = load_recipes(path).projects[0]
    place = directory / "work"
    source = fetch_recipe(recipe, place, directory / "cache")
    folder = directory / "benchmarks"
    make_inputs(recipe, source, folder)
    built = build_project(recipe, source, place / "build", CLANG, ["-O2"], 1)
    return run_benchmarks(recipe, built, source, folder, "clang", counter, 2)


def test_a_run_repeats_to_the_instruction(make_recipe: Callable[..., Path], tmp_path: Path) -> None:
    first, second = (build_and_run(make_recipe(TURN, BACK), tmp_path / name) for name in ("a", "another-place"))
    assert first == second
    assert [found.program for found in first] == ["reverse", "reverse"]
    # One after the other, and twice, as with the processor's counters.
    in_turn = replace(CALLGRIND, repeats=2, parallel=False)
    assert build_and_run(make_recipe(TURN, BACK), tmp_path / "c", in_turn) == first
    # A loop over 30,000 bytes, and what starts a program.
    assert all(30_000 * 5 < found.count.instructions < 30_000 * 300 for found in first)
    said = subprocess.check_output(["size", "-A", tmp_path / "a/work/source/reverse"], text=True)
    sections = {line.split()[0]: int(line.split()[1]) for line in said.splitlines() if line.startswith(".")}
    assert first[0].text_bytes == sections[".text"]
    # What the first wrote, turned again, is the input.
    folder = tmp_path / "a/benchmarks"
    source = (REVERSE * 30000).encode()[:30000]
    assert (folder / "turn/input").read_bytes() == source
    assert (folder / "turn/output").read_bytes() == source[::-1]
    assert (folder / "back/stdout").read_bytes().startswith(source)
    assert first[0].output and not first[1].output


@pytest.mark.parametrize(
    ("benchmark", "words"),
    [
        (text("abc"), "benchmark text, built by clang, has status 7"),
        (text("abcd"), "benchmark text, built by clang, ended by signal 6"),
        ({**TURN, "program": "other"}, "benchmark turn wants one program, and other matches nothing"),
        ({**TURN, "program": "reverse*"}, "matches reverse, reverse-too, reverse.c, reverse.o"),
        ({**TURN, "program": "*.c"}, "reverse.c: this is not an ELF file"),
        ({**TURN, "input": {"files": ["*.png"], "bytes": 9}}, r"\*\.png match no content"),
        ({**TURN, "arguments": ["{input}", "/dev/null", "{output}"]}, "wrote nothing to its output"),
    ],
)
def test_what_does_not_run_is_named(
    make_recipe: Callable[..., Path], tmp_path: Path, benchmark: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words) as caught:
        build_and_run(make_recipe(benchmark, {**BACK, "input": {"output_of": benchmark["name"]}}), tmp_path)
    assert caught.value.problem.startswith(("unknown", "no input", str(tmp_path))) and caught.value.remedy


def test_a_program_that_does_not_end_is_killed(
    make_recipe: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark_runner, "TIMEOUT_S", 0.2)
    with pytest.raises(UserError, match="did not end within 0 s"):
        build_and_run(make_recipe(text("abcde")), tmp_path)


@pytest.fixture
def wrong(tmp_path: Path) -> Toolchain:
    """A compiler that takes a policy's flags, and makes other code of the same source than clang-19 does."""
    binaries = tmp_path / "release/bin"
    binaries.mkdir(parents=True)
    script = '#!/bin/sh\nfor a; do shift; case $a in -mllvm|-enable-ml*) ;; *) set -- "$@" "$a" ;; esac; done\n'
    for name in ("clang", "clang++"):
        (binaries / name).write_text(f'{script}exec {CLANG} -DWRONG "$@"\n')
        (binaries / name).chmod(0o755)
    said = subprocess.run([CLANG, "--version"], capture_output=True, text=True, check=True).stdout
    version = said.split("clang version ")[1].split()[0]
    return Toolchain(tmp_path / "release", "release", version, "x86_64-pc-linux-gnu", {"inlining": ()}, {})


def test_another_output_is_no_comparison(make_recipe: Callable[..., Path], wrong: Toolchain, tmp_path: Path) -> None:
    recipes = load_recipes(make_recipe(TURN, BACK)).projects
    work = tmp_path / "work"
    with pytest.raises(UserError, match="benchmark turn prints something else when built by the release clang"):
        compare_programs(recipes, CLANG, wrong, "inlining", work, tmp_path / "cache", 2)
    assert not list(work.iterdir())


def test_nothing_is_built_without_a_counter_or_a_benchmark_or_the_policy(
    make_recipe: Callable[..., Path], wrong: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (wrong, "inlining", tmp_path / "work", tmp_path / "cache", 1)
    assert compare_programs(load_recipes(make_recipe()).projects, CLANG, *arguments) == []
    recipes = load_recipes(make_recipe(TURN)).projects
    with pytest.raises(UserError, match="embeds no policy for regalloc"):
        compare_programs(recipes, CLANG, wrong, "regalloc", *arguments[2:])
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UserError, match="valgrind is missing"):
        compare_programs(recipes, CLANG, *arguments)
    assert not (tmp_path / "work").exists()


INTERRUPTED = """
import sys
from pathlib import Path
from tests.components.evaluation.benchmarks.test_benchmark_comparison import build_and_run
build_and_run(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_an_interrupt_ends_the_programs(make_recipe: Callable[..., Path], tmp_path: Path) -> None:
    recipe = make_recipe(text("abcde"), {**text("fghij"), "name": "other"}, {**text("klmno"), "name": "third"})
    started = subprocess.Popen([sys.executable, "-c", INTERRUPTED, recipe, tmp_path], stderr=subprocess.PIPE, text=True)
    deadline_s = time.monotonic() + 300
    try:
        while len(working_below(tmp_path / "benchmarks")) < 2:
            time.sleep(0.05)
            assert started.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline_s, "the programs do not begin"
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=120)
    finally:
        started.kill()  # its guard then ends the programs, which run for ever
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert not working_below(tmp_path)


def working_below(directory: Path) -> list[str]:
    """Processes whose working directory is in `directory`."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if path.joinpath("cwd").readlink().is_relative_to(directory):
                found.append(path.name)
    return found


def program(name: str, stock: int, policy: int, cycles: int | None = None) -> Program:
    return Program("p", name, "bin/p", Figures(stock, cycles, 100), Figures(policy, cycles, 90), "callgrind")


def test_the_summary() -> None:
    summary = summarize_programs([program("a", 1000, 900), program("b", 100, 110)])
    assert summary is not None
    assert summary["instructions"] == {"stock": 1100, "policy": 1010} and summary["counter"] == "callgrind"
    assert summary["reduction_percent"] == pytest.approx(100 * 90 / 1100)
    assert summary["geometric_mean_reduction_percent"] == pytest.approx(100 * (1 - (0.9 * 1.1) ** 0.5))
    assert summary["programs"][1] == {
        "project": "p",
        "name": "b",
        "program": "bin/p",
        "stock": {"instructions": 100, "cycles": None, "text_bytes": 100},
        "policy": {"instructions": 110, "cycles": None, "text_bytes": 90},
        "change_percent": pytest.approx(10),
    }
    json.dumps(summary, allow_nan=False)
    assert summarize_programs([]) is None


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    summary = summarize_programs([program("a", 1_234_000, 1_200_000, 77_000), program("b", 100, 110, 77)])
    assert summary is not None
    print_programs(summary)
    said = capsys.readouterr().out
    assert "p/a" in said and "1,234,000" in said and "-2.76%" in said and "+10.00%" in said
    assert "-10.00%" in said and "geometric mean 3.43% more" in said and "counted by callgrind" in said
    summary["programs"][0]["stock"]["cycles"] = None
    print_programs(summary)
    assert "–" in capsys.readouterr().out


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    started = [sys.executable, "-m", "components.evaluation", "compare-programs", *map(str, arguments)]
    return subprocess.run(started, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
def test_stock_and_release_clang(make_recipe: Callable[..., Path], release: Path, tmp_path: Path) -> None:
    output = tmp_path / "programs"
    arguments = ("--release-toolchain", release, "--problem", "inlining", "--output", output)
    done = command("--recipe", make_recipe(TURN, BACK), *arguments)
    assert done.returncode == 0, done.stderr
    summary = json.loads((output / "programs.json").read_text())
    assert [entry["name"] for entry in summary["programs"]] == ["turn", "back"]
    # The policy never inlines: a call for each byte.
    assert all(entry["change_percent"] > 1 for entry in summary["programs"]) and summary["reduction_percent"] < -1
    assert "unknown/turn" in done.stdout and "more instructions" in done.stdout
    assert sorted(path.name for path in output.iterdir()) == ["manifest.json", "programs.json"]

    again = command("--recipe", make_recipe(TURN, BACK), *arguments)
    assert again.returncode == 0, again.stderr
    if summary["counter"] == "callgrind":  # what the processor counts differs a little each time
        assert json.loads((output / "programs.json").read_text()) == summary

    shutil.rmtree(output)
    nothing = command("--recipe", make_recipe(), *arguments)
    assert nothing.returncode == 1 and "none of unknown has a benchmark to run" in nothing.stderr
    assert not output.exists()
