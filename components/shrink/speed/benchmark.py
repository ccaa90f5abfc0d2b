"""Compares the speed of the delivered build with that of the user's own, by a command of the user."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from components.core.projects.flags.linked_files import find_binaries
from components.core.projects.source_tree import SourceTree, remove_tree
from components.core.projects.speed.counters import Counter, find_counter
from components.core.projects.speed.stopwatch import compare_times
from components.core.projects.speed.user_command import UserCommand
from components.platform.console import say
from components.platform.errors import UserError
from components.shrink.types import SpeedChange

REPEATS = 10
_STRIP_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Benchmark:
    """A user's command, which runs in a copy of the source tree with the linked files of a build.

    Attributes:
        command: for a shell.
        source: the tree. omitted: its directories that are not copied.
        place: where the copy is, which is where the builds ran.
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
        with self._trees(own) as (trees, command):
            command.try_once(trees[0])

    def run_with(self, files: Path, variables: tuple[str, ...]) -> None:
        """Run the command with a build's linked files and variables of the environment, given as NAME=value.

        Raises:
            UserError: it fails or takes too long.
        """
        with self._trees(files) as (trees, command):
            replace(command, variables=variables, titles=("the instrumented build",) * 2).try_once(trees[0])

    def count(self, files: Path, counter: Counter) -> int:
        """Return the instructions of the command with a build's files. UserError if it fails or takes too long."""
        with self._trees(files) as (trees, command):
            titles = ("the counted build",) * 2
            counts, _ = replace(command, titles=titles).compare(trees, counter, 0, f"counting {self.command}")
        return counts[0].instructions

    def compare(self, own: Path, delivered: Path) -> SpeedChange:
        """Count the instructions of the command, and take its processor time in alternating runs.

        Raises:
            UserError: the command fails or takes too long.
        """
        counter = _find_counter()
        with self._trees(own, delivered) as (trees, command):
            counts, times = command.compare(trees, counter, REPEATS, f"running {self.command}")
        own_s, delivered_s = (np.array(one)[:, None] for one in times)
        (change,) = compare_times(own_s, delivered_s)
        instructions = [count.instructions for count in counts] or [0, 0]
        return SpeedChange(
            command=self.command,
            counter=counter.name if counter else "",
            own_instructions=instructions[0],
            delivered_instructions=instructions[1],
            time=change,
        )

    @contextmanager
    def _trees(self, *builds: Path) -> Iterator[tuple[list[Path], UserCommand]]:
        """Have a copy of the source tree with the linked files of each build, and the command that runs in them."""
        work = self.place.with_name(f"{self.place.name}-benchmark")
        command = UserCommand(
            self.command,
            ("your own build", "the delivered build"),
            self.place,
            work / "figures",
            self.timeout_s,
            "it runs in a copy of the source tree, with the linked files at their paths; other files have to be named "
            "absolutely",
            "make it smaller, or pass --check-timeout SECONDS",
        )
        trees = [work / f"tree{number}" for number in range(len(builds))]
        work.mkdir()
        try:
            for tree, files in zip(trees, builds, strict=True):
                self.source.copy(tree, self.omitted)
                self._place_files(files, tree)
            yield trees, command
        finally:
            remove_tree(work)

    def _place_files(self, files: Path, tree: Path) -> None:
        """Have linked files at their paths, without debug data, which valgrind may not read."""
        for name, path in find_binaries(files):
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            done = subprocess.run(
                [self.strip, "--strip-debug", "-o", target, path], capture_output=True, timeout=_STRIP_TIMEOUT_S
            )
            if done.returncode != 0:
                shutil.copy2(path, target)


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
