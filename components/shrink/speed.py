"""Compares the speed of the delivered build with that of the user's own, by a command of the user."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.core.projects.flags.linked_files import find_binaries
from components.core.projects.source_tree import SourceTree, remove_tree
from components.core.projects.speed.counters import Count, Counter, find_counter
from components.core.projects.speed.stopwatch import compare_times, read_stopwatch, stopwatch_command
from components.platform.console import Progress, say
from components.platform.errors import UserError
from components.platform.processes.supervision import ProcessTimeout, run
from components.platform.storage.digests import file_digest
from components.shrink.types import SpeedChange

REPEATS = 10
_STRIP_TIMEOUT_S = 300.0
_TITLES = ("your own build", "the delivered build")


@dataclass(frozen=True)
class Benchmark:
    """A user's command, which runs in a copy of the source tree with the linked files of a build.

    Attributes:
        command: for a shell.
        source: the tree. omitted: its directories that are not copied.
        place: where the copy is, which is where the builds ran.
        strip: LLVM's strip.
        timeout_s: time limit of a run.
    """

    command: str
    source: SourceTree
    omitted: tuple[Path, ...]
    place: Path
    strip: Path
    timeout_s: float

    def try_once(self, own: Path) -> None:
        """Run the command with the user's own build, before the others are built.

        Raises:
            UserError: it fails or takes too long.
        """
        with self._tree() as figures:
            self._place_files(own)
            self._time(0, figures)

    def compare(self, own: Path, delivered: Path) -> SpeedChange:
        """Count the instructions of the command, and take its processor time in alternating runs.

        Args:
            own, delivered: directories of linked files.

        Raises:
            UserError: the command fails or takes too long.
        """
        with self._tree() as figures:
            return self._compare((own, delivered), figures)

    @contextmanager
    def _tree(self) -> Iterator[Path]:
        """Have a copy of the tree, and yield the file for figures."""
        work = self.place.with_name(f"{self.place.name}-figures")
        work.mkdir()
        try:
            self.source.copy(self.place, self.omitted)
            yield work / "figures"
        finally:
            for directory in (self.place, work):
                remove_tree(directory)

    def _compare(self, builds: Sequence[Path], figures: Path) -> SpeedChange:
        counter = _find_counter()
        counts: list[Count] = []
        outputs = []
        times: list[list[float]] = [[], []]
        runs = 2 * ((counter.repeats if counter else 0) + REPEATS)
        with Progress(f"running {self.command}", runs) as progress:
            for index, files in enumerate(builds):
                self._place_files(files)
                for _ in range(counter.repeats if counter else 0):
                    counts.append(self._count(counter, index, figures))  # type: ignore[arg-type]
                    progress.advance()
                outputs.append(self._time(index, figures)[1])
            for repeat in range(REPEATS):
                for index in (0, 1) if repeat % 2 else (1, 0):
                    self._place_files(builds[index])
                    times[index].append(self._time(index, figures)[0])
                    progress.advance()
        if outputs[0] != outputs[1]:
            say(f"{self.command} prints something else in the two builds: if it does not print times, look why")
        halves = counts[: len(counts) // 2], counts[len(counts) // 2 :]
        own, delivered = (min((count.instructions for count in half), default=0) for half in halves)
        own_s, delivered_s = (np.array(one)[:, None] for one in times)
        (change,) = compare_times(own_s, delivered_s)
        return SpeedChange(
            command=self.command,
            counter=counter.name if counter else "",
            own_instructions=own,
            delivered_instructions=delivered,
            time=change,
        )

    def _place_files(self, files: Path) -> None:
        """Have the linked files of a build at their paths, without debug data, which valgrind may not read."""
        for name, path in find_binaries(files):
            target = self.place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            done = subprocess.run(
                [self.strip, "--strip-debug", "-o", target, path], capture_output=True, timeout=_STRIP_TIMEOUT_S
            )
            if done.returncode != 0:
                shutil.copy2(path, target)

    def _count(self, counter: Counter, index: int, figures: Path) -> Count:
        for old in figures.parent.glob(f"{figures.name}*"):
            old.unlink()
        self._run(counter.command(figures, children=True), index, figures)
        return counter.read(figures, children=True)

    def _time(self, index: int, figures: Path) -> tuple[float, str]:
        """Return the processor time of the command, in seconds, and a digest of what it prints."""
        self._run(stopwatch_command(figures), index, figures)
        return read_stopwatch(figures), file_digest(figures.with_name("stdout"))

    def _run(self, prefix: Sequence[str], index: int, figures: Path) -> None:
        libraries = sorted({str(path.parent) for name, path in find_binaries(self.place) if ".so" in Path(name).name})
        path = os.pathsep.join([*libraries, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        variables = [f"LD_LIBRARY_PATH={path}"] if path else []
        command = ["/usr/bin/env", *variables, *prefix, "/bin/sh", "-e", "-c", self.command]
        subject = f"--benchmark {self.command}, with {_TITLES[index]},"
        try:
            with open(figures.with_name("stdout"), "wb") as stdout:
                done = run(command, self.timeout_s, stdout.fileno(), self.place, daemons=True)
        except ProcessTimeout:
            raise UserError(
                f"{subject} did not end in {self.timeout_s:.0f} s", "make it smaller, or pass --check-timeout SECONDS"
            ) from None
        if done.returncode != 0:
            raise UserError(
                f"{subject} ends with status {done.returncode}; it says:\n{done.stderr.strip()[-1000:]}",
                "it runs in a copy of the source tree, with the linked files at their paths; other files have to be "
                "named absolutely",
            )


def _find_counter() -> Counter | None:
    try:
        return find_counter()
    except UserError as error:
        say(f"{error.problem}: only times are compared ({error.remedy})")
        return None


def describe_speed(speed: SpeedChange) -> str:
    """Return the change of instructions and time in words, for the first line."""
    words = []
    if speed.own_instructions:
        words.append(f"{speed.instructions_percent:+.1f}% instructions")
    low, high = speed.time.interval_percent
    words.append(f"{speed.time.change_percent:+.1f}% time ({low:+.1f} to {high:+.1f}%)")
    return f"{', '.join(words)} in {speed.command}"
