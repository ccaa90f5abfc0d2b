"""Tests of the instruction counts of a small project, built with clang-19 and with a release clang."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis.extra.numpy import arrays
from hypothesis.strategies import floats

from components.core.formats.toolchain import Toolchain
from components.core.projects.build import build_project
from components.core.projects.recipe import load_recipes
from components.core.projects.source import fetch_recipe
from components.core.projects.speed.counters import Counter
from components.core.projects.speed.stopwatch import (
    Times,
    compare_times,
    mean_time_change,
    read_stopwatch,
    stopwatch_command,
)
from components.evaluation.benchmarks import benchmark_runner
from components.evaluation.benchmarks.benchmark_comparison import (
    BenchmarkComparison,
    compare_programs,
    summarize_programs,
)
from components.evaluation.benchmarks.benchmark_runner import BenchmarkRun, make_inputs, run_benchmarks
from components.evaluation.metrics_types import InstructionTotals, RunMetrics, encode_json
from components.evaluation.report.terminal_report import print_programs
from components.platform.errors import UserError
from tests.support.commands import run_command
from tests.support.waiting import wait_until

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
  if (length == 6) *(volatile int *)8 = 0;
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


def build_and_run(path: Path, directory: Path, counter: Counter = CALLGRIND) -> list[BenchmarkRun]:
    """Build a recipe with clang-19 in directory/work and run its benchmarks in directory/benchmarks."""
    recipe = load_recipes(path).projects[0]
    work = directory / "work"
    source = fetch_recipe(recipe, work, directory / "cache")
    folder = directory / "benchmarks"
    make_inputs(recipe, source, folder)
    built = build_project(recipe, source, work / "build", CLANG, ["-O2"], 1)
    return run_benchmarks(recipe, built, source, folder, "clang", counter, 2)


def test_instruction_counts_are_deterministic(make_recipe: Callable[..., Path], tmp_path: Path) -> None:
    first, second = (build_and_run(make_recipe(TURN, BACK), tmp_path / name) for name in ("a", "another-place"))
    assert first == second
    assert [run.program for run in first] == ["reverse", "reverse"]
    # Sequential and repeated runs, as with performance counters.
    sequential = replace(CALLGRIND, repeats=2, parallel=False)
    assert build_and_run(make_recipe(TURN, BACK), tmp_path / "c", sequential) == first
    # A loop over 30,000 bytes, and the start of the program.
    assert all(30_000 * 5 < run.count.instructions < 30_000 * 300 for run in first)
    output = subprocess.check_output(["size", "-A", tmp_path / "a/work/source/reverse"], text=True)
    sections = {line.split()[0]: int(line.split()[1]) for line in output.splitlines() if line.startswith(".")}
    assert first[0].text_bytes == sections[".text"]
    # The first benchmark reverses its input; the second reverses that output back.
    folder = tmp_path / "a/benchmarks"
    source = (REVERSE * 30000).encode()[:30000]
    assert (folder / "turn/input").read_bytes() == source
    assert (folder / "turn/output").read_bytes() == source[::-1]
    assert (folder / "back/stdout").read_bytes().startswith(source)
    assert first[0].output and not first[1].output


def test_daemon_of_a_benchmark_is_stopped_and_named(
    make_recipe: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_recipe(TURN)
    daemon = "if (fork() == 0) { setsid(); if (fork()) _exit(0); sleep(3600); } static char text"
    source = f"#include <unistd.h>\n{REVERSE.replace('static char text', daemon)}"
    (tmp_path / "source/reverse.c").write_text(source)
    assert len(build_and_run(path, tmp_path / "a")) == 1
    assert "left running" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("benchmark", "message"),
    [
        (text("abc"), "benchmark text, built by clang, has status 7"),
        (text("abcd"), "benchmark text, built by clang, ended by signal 6"),
        (text("abcdef"), r"ended by signal 11; figures.log:\n(?s:.*)Access not within"),
        ({**TURN, "program": "other"}, "benchmark turn needs one program, but other matches nothing"),
        ({**TURN, "program": "reverse*"}, "matches reverse, reverse-too, reverse.c, reverse.o"),
        ({**TURN, "program": "*.c"}, "reverse.c: this is not an ELF file"),
        ({**TURN, "input": {"files": ["*.png"], "bytes": 9}}, r"\*\.png match no content"),
        ({**TURN, "arguments": ["{input}", "/dev/null", "{output}"]}, "wrote nothing to its output"),
    ],
)
def test_error_names_a_benchmark_that_fails(
    make_recipe: Callable[..., Path], tmp_path: Path, benchmark: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        build_and_run(make_recipe(benchmark, {**BACK, "input": {"output_of": benchmark["name"]}}), tmp_path)
    assert caught.value.problem.startswith(("unknown", "no input", str(tmp_path))) and caught.value.remedy


def test_program_is_killed_after_the_time_limit(
    make_recipe: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark_runner, "TIMEOUT_S", 0.2)
    with pytest.raises(UserError, match="within 0"):
        build_and_run(make_recipe(text("abcde")), tmp_path)


@pytest.fixture
def wrong(tmp_path: Path) -> Toolchain:
    """A compiler that accepts a policy's flags and compiles programs with output other than clang-19's."""
    binaries = tmp_path / "release/bin"
    binaries.mkdir(parents=True)
    script = '#!/bin/sh\nfor a; do shift; case $a in -mllvm|-enable-ml*) ;; *) set -- "$@" "$a" ;; esac; done\n'
    for name in ("clang", "clang++"):
        (binaries / name).write_text(f'{script}exec {CLANG} -DWRONG "$@"\n')
        (binaries / name).chmod(0o755)
    output = subprocess.run([CLANG, "--version"], capture_output=True, text=True, check=True).stdout
    version = output.split("clang version ")[1].split()[0]
    return Toolchain(tmp_path / "release", "release", version, "x86_64-pc-linux-gnu", {"inlining": ()}, {})


def test_different_output_is_an_error(make_recipe: Callable[..., Path], wrong: Toolchain, tmp_path: Path) -> None:
    recipes = load_recipes(make_recipe(TURN, BACK)).projects
    work = tmp_path / "work"
    with pytest.raises(UserError, match="prints something"):
        compare_programs(recipes, CLANG, wrong, "inlining", work, tmp_path / "cache", 2)
    assert not list(work.iterdir())


def test_nothing_is_built_without_counter_benchmark_or_policy(
    make_recipe: Callable[..., Path], wrong: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (wrong, "inlining", tmp_path / "work", tmp_path / "cache", 1)
    assert compare_programs(load_recipes(make_recipe()).projects, CLANG, *arguments) == []
    recipes = load_recipes(make_recipe(TURN)).projects
    with pytest.raises(UserError, match="regalloc"):
        compare_programs(recipes, CLANG, wrong, "regalloc", *arguments[2:])
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UserError, match="valgrind"):
        compare_programs(recipes, CLANG, *arguments)
    assert not (tmp_path / "work").exists()


INTERRUPTED = """
import sys
from pathlib import Path
from tests.components.evaluation.benchmarks.test_benchmark_comparison import build_and_run
build_and_run(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_interrupt_kills_the_programs(make_recipe: Callable[..., Path], tmp_path: Path) -> None:
    recipe = make_recipe(text("abcde"), {**text("fghij"), "name": "other"}, {**text("klmno"), "name": "third"})
    started = subprocess.Popen([sys.executable, "-c", INTERRUPTED, recipe, tmp_path], stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: len(processes_in(tmp_path / "benchmarks")) >= 2, "the programs", started, timeout_s=300)
        started.send_signal(signal.SIGINT)
        try:
            _, stderr = started.communicate(timeout=60)
        except subprocess.TimeoutExpired:  # Python loses the exception where it runs a callback of a weak reference
            started.send_signal(signal.SIGINT)
            _, stderr = started.communicate(timeout=60)
    finally:
        started.kill()  # the reaper then kills the programs, which never end
    assert stderr.rstrip().endswith("KeyboardInterrupt")
    assert not processes_in(tmp_path)


def processes_in(directory: Path) -> list[str]:
    """Return the processes whose working directory is in `directory`."""
    processes = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if path.joinpath("cwd").readlink().is_relative_to(directory):
                processes.append(path.name)
    return processes


@pytest.mark.toolchain
def test_times_of_both_builds(make_recipe: Callable[..., Path], release: Path, tmp_path: Path) -> None:
    output = tmp_path / "programs"
    arguments = ("--release-toolchain", release, "--problem", "inlining", "--time-repeats", "6", "--output", output)
    # A loop over 512 KiB, twice: without inlining it has a million calls.
    long = {**TURN, "input": {"files": ["reverse.*"], "bytes": 1 << 19}}
    done = command("--recipe", make_recipe(long, BACK), *arguments)
    assert done.returncode == 0, done.stderr
    summary = json.loads((output / "programs.json").read_text())
    for change in (summary["time"], *(entry["time"] for entry in summary["programs"])):
        assert change["repeats"] == 6 and 0 < change["stock_s"] < 10 and 0 < change["policy_s"] < 10
        low, high = change["interval_percent"]
        assert low <= change["change_percent"] <= high
    medians = [entry["time"]["stock_s"] for entry in summary["programs"]]
    assert summary["time"]["stock_s"] == pytest.approx(sum(medians))
    assert "6 runs" in done.stdout and "95% interval" in done.stdout
    assert sorted(path.name for path in output.iterdir()) == ["manifest.json", "programs.json"]
    few = command("--recipe", make_recipe(long), *arguments[:4], "--time-repeats", "5", "--output", output)
    assert few.returncode == 2 and "no 95%" in few.stderr


def test_stopwatch_takes_the_time_of_the_program_alone(tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([*stopwatch_command(figures), sys.executable, "-c", spin], check=True)
    assert 0.3 <= read_stopwatch(figures) < 1
    subprocess.run([*stopwatch_command(figures), "/bin/sleep", "0.3"], check=True)
    assert read_stopwatch(figures) < 0.1
    assert subprocess.run([*stopwatch_command(figures), "/bin/sh", "-c", "exit 7"]).returncode == 7
    assert subprocess.run([*stopwatch_command(figures), "/bin/sh", "-c", "kill -6 $$"]).returncode == -6
    figures.write_text("")
    with pytest.raises(UserError, match="not taken"):
        read_stopwatch(figures)


def test_a_disturbed_run_does_not_change_the_time() -> None:
    generator = np.random.default_rng(1)
    stock = generator.normal(1.0, 0.002, (20, 3)) * [0.2, 1.0, 5.0]
    policy = stock * generator.normal(1.01, 0.002, (20, 3))
    policy[3] *= 4
    mean = mean_time_change(stock, policy)
    assert mean.change_percent == pytest.approx(1.0, abs=0.2)
    assert 0.5 < mean.interval_percent[0] < mean.change_percent < mean.interval_percent[1] < 1.5
    assert mean == mean_time_change(stock, policy) and mean.repeats == 20
    changes = compare_times(stock, policy)
    assert [round(change.stock_s, 1) for change in changes] == [0.2, 1.0, 5.0]
    assert all(abs(change.change_percent - 1) < 0.4 for change in changes)
    same = mean_time_change(stock, stock)
    assert (same.change_percent, same.interval_percent) == (0, (0, 0))


@given(arrays(np.float64, (7, 2), elements=floats(1e-3, 1e3)), arrays(np.float64, (7, 2), elements=floats(1e-3, 1e3)))
def test_exchanged_builds_have_the_opposite_change(stock: Times, policy: Times) -> None:
    one, other = mean_time_change(stock, policy), mean_time_change(policy, stock)
    assert (1 + one.change_percent / 100) * (1 + other.change_percent / 100) == pytest.approx(1)
    low, high = one.interval_percent
    assert low <= one.change_percent + 1e-6 and one.change_percent <= high + 1e-6


def program(name: str, stock: int, policy: int, cycles: int | None = None) -> BenchmarkComparison:
    return BenchmarkComparison(
        "p", name, "bin/p", RunMetrics(stock, cycles, 100), RunMetrics(policy, cycles, 90), "callgrind"
    )


def test_summary() -> None:
    summary = summarize_programs([program("a", 1000, 900), program("b", 100, 110)])
    assert summary is not None
    assert summary.instructions == InstructionTotals(1100, 1010) and summary.counter == "callgrind"
    assert summary.reduction_percent == pytest.approx(100 * 90 / 1100)
    assert summary.geometric_mean_reduction_percent == pytest.approx(100 * (1 - (0.9 * 1.1) ** 0.5))
    assert json.loads(encode_json(summary))["programs"][1] == {
        "project": "p",
        "name": "b",
        "program": "bin/p",
        "stock": {"instructions": 100, "cycles": None, "text_bytes": 100},
        "policy": {"instructions": 110, "cycles": None, "text_bytes": 90},
        "change_percent": pytest.approx(10),
    }
    assert summarize_programs([]) is None


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    summary = summarize_programs([program("a", 1_234_000, 1_200_000, 77_000), program("b", 100, 110, 77)])
    assert summary is not None
    print_programs(summary)
    output = capsys.readouterr().out
    assert "p/a" in output and "1,234,000" in output and "-2.76%" in output and "+10.00%" in output
    assert "-10.00%" in output and "geometric mean 3.43% more" in output and "callgrind" in output
    summary.programs[0].stock = replace(summary.programs[0].stock, cycles=None)
    print_programs(summary)
    assert "–" in capsys.readouterr().out


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_command("components.evaluation", "compare-programs", *arguments, timeout=600)


@pytest.mark.toolchain
def test_stock_and_release_clang(make_recipe: Callable[..., Path], release: Path, tmp_path: Path) -> None:
    output = tmp_path / "programs"
    arguments = ("--release-toolchain", release, "--problem", "inlining", "--output", output)
    done = command("--recipe", make_recipe(TURN, BACK), *arguments)
    assert done.returncode == 0, done.stderr
    summary = json.loads((output / "programs.json").read_text())
    assert [entry["name"] for entry in summary["programs"]] == ["turn", "back"]
    # The policy never inlines, so there is a call for each byte.
    assert all(entry["change_percent"] > 1 for entry in summary["programs"]) and summary["reduction_percent"] < -1
    assert "unknown/turn" in done.stdout and "more instructions" in done.stdout
    assert sorted(path.name for path in output.iterdir()) == ["manifest.json", "programs.json"]

    again = command("--recipe", make_recipe(TURN, BACK), *arguments)
    assert again.returncode == 0, again.stderr
    if summary["counter"] == "callgrind":  # performance counters vary slightly between runs
        assert json.loads((output / "programs.json").read_text()) == summary

    shutil.rmtree(output)
    failed = command("--recipe", make_recipe(), *arguments)
    assert failed.returncode == 1 and "unknown" in failed.stderr
    assert not output.exists()
