"""Runs a user's command with the linked files of both builds, and compares instructions and processor time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from components.core.projects.flags.linked_files import find_binaries
from components.core.projects.runpath import relocate_runpath
from components.core.projects.speed.counters import Count, Counter, find_counter
from components.core.projects.speed.stopwatch import read_stopwatch, stopwatch_command
from components.evaluation.benchmarks.benchmark_comparison import BenchmarkComparison
from components.evaluation.benchmarks.benchmark_runner import TIMEOUT_S
from components.evaluation.metrics_types import RunMetrics
from components.evaluation.projects.own_build import RelinkedBuild
from components.platform.console import Progress, say
from components.platform.errors import UserError
from components.platform.processes import supervision
from components.platform.storage.digests import file_digest

NAME = "benchmark"
_STRIP_TIMEOUT_S = 300.0
_TITLES = ("stock clang", "the release clang")


@dataclass(frozen=True)
class OwnBenchmark:
    """A user's command.

    Attributes:
        command: for a shell.
        build: the user's build directory, $BUILD of the command.
        strip: LLVM's strip.
    """

    command: str
    build: Path
    strip: Path

    def compare(self, relinked: RelinkedBuild, work: Path, time_repeats: int) -> BenchmarkComparison:
        """Run the command with the files of both builds, each of them at the same path.

        Args:
            work: directory with both builds.
            time_repeats: runs with each build for their processor time, alternately; 0 for none.

        Raises:
            UserError: nothing is linked, a file cannot be stripped, this machine has no counter, or the command fails
                or takes too long.
        """
        if relinked.summary.need:
            raise UserError(f"no program is linked: {relinked.summary.need}", "leave --benchmark out")
        counter, place = find_counter(), work.absolute() / "linked"
        for tree in relinked.trees:
            for name, path in find_binaries(tree):
                self._strip(path)
                relocate_runpath(path, self.build / name, self.build)
        figures = work.absolute() / "figures"
        counts, outputs = [], []
        runs = 2 * (counter.repeats + time_repeats)
        with Progress(f"running {NAME} ({counter.name})", runs) as progress:
            for title, tree in zip(_TITLES, relinked.trees, strict=True):
                with _moved(tree, place):
                    counts.append(self._count(counter, title, place, figures, progress))
                    outputs.append(file_digest(figures.with_name("stdout")))
            times: tuple[list[float], list[float]] = ([], [])
            for repeat in range(time_repeats):
                for build in (0, 1) if repeat % 2 else (1, 0):
                    with _moved(relinked.trees[build], place):
                        self._run(stopwatch_command(figures), _TITLES[build], place, figures)
                        times[build].append(read_stopwatch(figures))
                    progress.advance()
        if outputs[0] != outputs[1]:
            say(f"{self.command} prints something else in the two builds: if it does not print times, look why")
        texts = [sum(getattr(binary, build).text for binary in relinked.binaries) for build in ("stock", "policy")]
        stock, policy = (
            RunMetrics(count.instructions, count.cycles, text) for count, text in zip(counts, texts, strict=True)
        )
        return BenchmarkComparison(
            relinked.project, NAME, self.command, stock, policy, counter.name, tuple(times[0]), tuple(times[1])
        )

    def _strip(self, path: Path) -> None:
        """Remove debug data: valgrind does not run a program with data that it cannot read, such as clang's DWARF 5."""
        try:
            done = supervision.run([self.strip, "--strip-debug", path], _STRIP_TIMEOUT_S)
        except supervision.ProcessTimeout:
            problem = f"it takes more than {_STRIP_TIMEOUT_S:g} s"
        else:
            if done.returncode == 0:
                return
            problem = done.stderr.strip()[:300] or done.reason
        raise UserError(f"{path} cannot be stripped: {problem}", "leave --benchmark out")

    def _count(self, counter: Counter, title: str, place: Path, figures: Path, progress: Progress) -> Count:
        counts = []
        for _ in range(counter.repeats):
            for old in figures.parent.glob(f"{figures.name}*"):
                old.unlink()
            self._run(counter.command(figures, children=True), title, place, figures)
            counts.append(counter.read(figures, children=True))
            progress.advance()
        return min(counts, key=lambda count: count.instructions)

    def _run(self, prefix: Sequence[str], title: str, place: Path, figures: Path) -> None:
        libraries = sorted({str(path.parent) for name, path in find_binaries(place) if ".so" in Path(name).name})
        path = os.pathsep.join([*libraries, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        environment = [f"BUILD={self.build}", *([f"LD_LIBRARY_PATH={path}"] if path else [])]
        command = ["/usr/bin/env", *environment, *prefix, "/bin/sh", "-e", "-c", self.command]
        subject = f"--benchmark {self.command}, with the files by {title},"
        try:
            with open(figures.with_name("stdout"), "wb") as stdout:
                done = supervision.run(command, TIMEOUT_S, stdout.fileno(), place, daemons=True)
        except supervision.ProcessTimeout:
            raise UserError(f"{subject} did not end within {TIMEOUT_S:.0f} s", "make it smaller") from None
        if done.returncode != 0:
            # What stopped valgrind itself is only in its log.
            logs = [path.read_text(errors="replace") for path in figures.parent.glob(f"{figures.name}.log")]
            said = "\n".join([done.stderr, *logs]).strip()
            raise UserError(
                f"{subject} ends with status {done.returncode}; it says:\n{said[-1000:]}",
                "it runs in a directory with the linked files at their paths in your build directory; other files are "
                "below $BUILD",
            )


@contextmanager
def _moved(tree: Path, place: Path) -> Iterator[None]:
    """Have a build at the place of both: the length of a path moves a program's stack, and so changes its speed."""
    tree.rename(place)
    try:
        yield
    finally:
        place.rename(tree)
