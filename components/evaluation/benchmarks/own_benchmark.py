"""Runs a user's command with the linked files of both builds, and compares instructions and processor time."""

from __future__ import annotations

from pathlib import Path

from components.core.projects.flags.linked_files import find_binaries
from components.core.projects.runpath import relocate_runpath
from components.core.projects.speed.counters import find_counter
from components.core.projects.speed.user_command import UserCommand
from components.evaluation.benchmarks.benchmark_comparison import BenchmarkComparison
from components.evaluation.benchmarks.benchmark_runner import TIMEOUT_S
from components.evaluation.metrics_types import RunMetrics
from components.evaluation.projects.own_build import RelinkedBuild
from components.platform.errors import UserError
from components.platform.processes import supervision

NAME = "benchmark"
_STRIP_TIMEOUT_S = 300.0


def compare_own_benchmark(
    shell_command: str, relinked: RelinkedBuild, build: Path, strip: Path, work: Path, time_repeats: int
) -> BenchmarkComparison:
    """Run a user's command with the files of both builds, each of them at the same path.

    Args:
        build: the user's build directory, $BUILD of the command.
        work: directory with both builds.
        time_repeats: runs with each build for their processor time, alternately; 0 for none.

    Raises:
        UserError: nothing is linked, a file cannot be stripped, this machine has no counter, or the command fails or
            takes too long.
    """
    if relinked.summary.need:
        raise UserError(f"no program is linked: {relinked.summary.need}", "leave --benchmark out")
    counter = find_counter()
    for tree in relinked.trees:
        for name, path in find_binaries(tree):
            _strip(strip, path)
            relocate_runpath(path, build / name, build)
    command = UserCommand(
        shell_command,
        ("the files by stock clang", "the files by the release clang"),
        work.absolute() / "linked",
        work.absolute() / "figures",
        TIMEOUT_S,
        "it runs in a directory with the linked files at their paths in your build directory; other files are "
        "below $BUILD",
        "make it smaller",
        (f"BUILD={build}",),
    )
    counts, times = command.compare(relinked.trees, counter, time_repeats, f"running {NAME} ({counter.name})")
    texts = [sum(getattr(binary, side).text for binary in relinked.binaries) for side in ("stock", "policy")]
    stock, policy = (
        RunMetrics(count.instructions, count.cycles, text) for count, text in zip(counts, texts, strict=True)
    )
    return BenchmarkComparison(
        relinked.project, NAME, shell_command, stock, policy, counter.name, tuple(times[0]), tuple(times[1])
    )


def _strip(strip: Path, path: Path) -> None:
    """Remove debug data: valgrind does not run a program with data that it cannot read, such as clang's DWARF 5."""
    try:
        done = supervision.run([strip, "--strip-debug", path], _STRIP_TIMEOUT_S)
    except supervision.ProcessTimeout:
        problem = f"it takes more than {_STRIP_TIMEOUT_S:g} s"
    else:
        if done.returncode == 0:
            return
        problem = done.stderr.strip()[:300] or done.reason
    raise UserError(f"{path} cannot be stripped: {problem}", "leave --benchmark out")
