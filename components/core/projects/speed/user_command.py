"""Runs a user's shell command with the files of two builds in turn, and compares its instructions and times."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from components.core.projects.flags.linked_files import find_binaries
from components.core.projects.speed.counters import Count, Counter
from components.core.projects.speed.stopwatch import read_stopwatch, stopwatch_command
from components.platform.console import Progress, say
from components.platform.errors import UserError
from components.platform.processes.supervision import ProcessTimeout, run
from components.platform.storage.digests import file_digest


@dataclass(frozen=True)
class UserCommand:
    """A command of --benchmark.

    Attributes:
        command: for a shell.
        titles: what it runs with, in messages, by build.
        place: the directory that it runs in, where the tree of each build is in turn: the length of a path moves a
            program's stack, and so changes its speed.
        figures: file for what a counter or a stopwatch writes; others are next to it.
        timeout_s: time limit of a run.
        failure_remedy, timeout_remedy: what to do if it fails or takes too long.
        variables: of its environment, as NAME=value.
    """

    command: str
    titles: tuple[str, str]
    place: Path
    figures: Path
    timeout_s: float
    failure_remedy: str
    timeout_remedy: str
    variables: tuple[str, ...] = ()

    def try_once(self, tree: Path) -> None:
        """Run the command with the tree of the first build. UserError if it fails or takes too long."""
        with self._moved(tree):
            self._run((), 0, _library_directories(self.place))

    def compare(
        self, trees: Sequence[Path], counter: Counter | None, time_repeats: int, title: str
    ) -> tuple[list[Count], tuple[list[float], list[float]]]:
        """Count the command's instructions, and take its processor time in alternating runs.

        Args:
            trees: a directory for each build.
            counter: None to count nothing.
            time_repeats: runs with each build for their processor time; 0 for none.

        Returns:
            For each build the least count, none without a counter; for each build the times in seconds.

        Raises:
            UserError: the command fails or takes too long.
        """
        count_repeats = counter.repeats if counter is not None else 0
        libraries = [_library_directories(tree) for tree in trees]
        outputs: dict[int, str] = {}
        counts: list[Count] = []
        times: tuple[list[float], list[float]] = ([], [])

        def run_build(prefix: Sequence[str], build: int) -> None:
            self._run(prefix, build, libraries[build])
            if build not in outputs:
                outputs[build] = file_digest(self._stdout)
            progress.advance()

        with Progress(title, len(trees) * (count_repeats + time_repeats)) as progress:
            if counter is not None:
                for build, tree in enumerate(trees):
                    counted = []
                    with self._moved(tree):
                        for _ in range(counter.repeats):
                            for old in self.figures.parent.glob(f"{self.figures.name}*"):
                                old.unlink()
                            run_build(counter.command(self.figures, children=True), build)
                            counted.append(counter.read(self.figures, children=True))
                    counts.append(min(counted, key=lambda count: count.instructions))
            for repeat in range(time_repeats):
                for build in (0, 1) if repeat % 2 else (1, 0):
                    with self._moved(trees[build]):
                        run_build(stopwatch_command(self.figures), build)
                        times[build].append(read_stopwatch(self.figures))
        if len(set(outputs.values())) > 1:
            say(f"{self.command} prints something else in the two builds: if it does not print times, look why")
        return counts, times

    @property
    def _stdout(self) -> Path:
        return self.figures.with_name("stdout")

    @contextmanager
    def _moved(self, tree: Path) -> Iterator[None]:
        tree.rename(self.place)
        try:
            yield
        finally:
            self.place.rename(tree)

    def _run(self, prefix: Sequence[str], build: int, libraries: Sequence[str]) -> None:
        places = [str(self.place / directory) for directory in libraries]
        path = os.pathsep.join([*places, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        variables = [*self.variables, *([f"LD_LIBRARY_PATH={path}"] if path else [])]
        command = ["/usr/bin/env", *variables, *prefix, "/bin/sh", "-e", "-c", self.command]
        subject = f"--benchmark {self.command}, with {self.titles[build]},"
        try:
            with self._stdout.open("wb") as stdout:
                done = run(command, self.timeout_s, stdout.fileno(), self.place, daemons=True)
        except ProcessTimeout:
            raise UserError(f"{subject} did not end within {self.timeout_s:.0f} s", self.timeout_remedy) from None
        if done.returncode != 0:
            # What stopped valgrind itself is only in its log.
            logs = [path.read_text(errors="replace") for path in self.figures.parent.glob(f"{self.figures.name}.log")]
            said = "\n".join([done.stderr, *logs]).strip()
            raise UserError(
                f"{subject} ends with status {done.returncode}; it says:\n{said[-1000:]}", self.failure_remedy
            )


def _library_directories(tree: Path) -> list[str]:
    """Return the directories of a tree that have shared libraries, relative to it."""
    return sorted({os.path.dirname(name) for name, _ in find_binaries(tree) if ".so" in os.path.basename(name)})
