"""Builds a program for size that is fast where the user's benchmark runs: `mlgo shrink --max-slowdown`.

An instrumented build runs the benchmark, and a compiler compiles for size with its profile. A level says how much of
the profile is hot, and is an option of the link: levels are tried by links alone, where the links of the build can be
repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from components.core.projects.flags.rows import FlagRow
from components.core.projects.flags.types import CompilerOfRow
from components.core.projects.source_tree import remove_tree
from components.core.projects.speed.counters import Counter, find_counter
from components.platform.console import say
from components.platform.errors import UserError
from components.shrink.builds.build import Builder, Compilers
from components.shrink.builds.built_tree import BuiltTree
from components.shrink.speed.benchmark import Benchmark
from components.shrink.types import Measure

PROFILE_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Level:
    """How much of a profile is hot.

    Attributes:
        text: for messages.
        options: of the link.
    """

    text: str
    options: tuple[str, ...] = ()


class NoProfileError(Exception):
    """A benchmark left no profile."""


class Profile(Protocol):
    """Builds of a row with a profile of a benchmark.

    Attributes:
        name: of the row.
        compiler: of the row.
    """

    name: str
    compiler: CompilerOfRow

    def instrumented(self, directory: Path, root: Path) -> FlagRow:
        """Return the row of the build in `root` whose programs write their profiles into a directory."""

    def start_programs(self, tree: BuiltTree, directory: Path) -> None:
        """Run each program of the instrumented build for a moment, confined, if the compiler needs that."""

    def variables(self, directory: Path) -> tuple[str, ...]:
        """Return the variables with which programs write their profiles, as NAME=value."""

    def finish(self, directory: Path) -> tuple[Sequence[Level], int]:
        """Take what they wrote, and return the levels, from the smallest build to the fastest, about, and the number of
        the one to try first.

        Raises:
            NoProfileError: they wrote nothing.
            UserError: the profiles cannot be merged.
        """

    def row(self, level: Level | None) -> FlagRow:
        """Return the row with the profile; None for links that get the level's options on their command lines."""

    def deliver(self, row: FlagRow, directory: Path, published: Path, source: Path) -> FlagRow:
        """Copy the profile into a directory that will be at `published`, and return the row that uses it there for
        builds in `source`."""


@dataclass
class SpeedLimit:
    """The limit of the instructions of a benchmark.

    Attributes:
        percent: how many more instructions than by the user's own build.
        counter: what counts them.
        own: instructions by the user's own build.
    """

    benchmark: Benchmark
    percent: float
    counter: Counter
    own: int = 0

    def count(self, files: Path) -> int:
        """Return the instructions with the linked files in a directory. UserError if the benchmark fails."""
        return self.benchmark.count(files, self.counter)

    def holds(self, instructions: int) -> bool:
        """Return whether so many instructions are within the limit."""
        return instructions <= self.own * (1 + self.percent / 100)

    def change(self, instructions: int) -> str:
        """Return the change against the user's own build in words."""
        return f"{100 * (instructions / self.own - 1):+.1f}% instructions" if self.own else f"{instructions:,}"

    def excess(self, instructions: int) -> str:
        """Return why a build with so many instructions is not delivered."""
        return f"{self.change(instructions)}, more than --max-slowdown {self.percent:g} allows"


def require_counter() -> Counter:
    """Return what counts instructions. UserError without one."""
    try:
        return find_counter()
    except UserError as error:
        raise UserError(f"--max-slowdown: {error.problem}", error.remedy) from None


@dataclass
class FastSearch:
    """Searches the level at which a program is smallest within the limit.

    Attributes:
        compilers: returns those of a row.
        work: directory of trials.
        measure: what is minimized.
        timeout_s: time limit of a build.
        levels: known when there is a profile.
        tried: bytes and instructions of the levels that were tried.
    """

    builder: Builder
    limit: SpeedLimit
    profile: Profile
    compilers: Callable[[FlagRow], Compilers]
    work: Path
    measure: Measure
    timeout_s: float | None
    levels: Sequence[Level] = ()
    tried: dict[Level, tuple[int, int]] = field(default_factory=dict)
    _first: int = 0
    _tree: Path | None = None

    def run(self) -> Level:
        """Return the level of the smallest of the builds that hold the limit, the fastest level if none does.

        Raises:
            UserError: a build fails, or the benchmark leaves no profile.
        """
        self.work.mkdir()
        self._make_profile()
        say(f"{self.profile.name}: building with the profile")
        compilers = replace(self.compilers(self.profile.row(None)), links=True)
        searched: list[Level] = []

        def search(tree: BuiltTree) -> None:
            if tree.can_relink:
                self._tree = tree.root
                searched.append(self._search(lambda level, files: self._relink(tree, level, files)))
                self._tree = None

        files = self.work / "linked"
        self.builder.run(self.profile.name, compilers, files, search, self.timeout_s)
        remove_tree(files)
        return searched[0] if searched else self._search(self._build)

    def faster(self, level: Level) -> Level | None:
        """Return the next level, None after the last."""
        return next(iter(self.levels[self.levels.index(level) + 1 :]), None)

    def _make_profile(self) -> None:
        benchmark, written = self.limit.benchmark, self.work / "profiles"
        say(f"{self.profile.name}: building instrumented programs, which {benchmark.command} runs")
        row = self.profile.instrumented(written, benchmark.place)
        compilers = replace(self.compilers(row), records=False)
        files = self.work / "instrumented"
        written.mkdir()

        def start(tree: BuiltTree) -> None:
            remove_tree(written)  # of programs that the build runs
            written.mkdir()
            self.profile.start_programs(tree, written)

        self.builder.run(f"{self.profile.name}-instrumented", compilers, files, start, self.timeout_s)
        benchmark.run_with(files, self.profile.variables(written))
        remove_tree(files)
        try:
            self.levels, self._first = self.profile.finish(written)
        except NoProfileError:
            raise UserError(
                f"{benchmark.command} runs none of the programs and libraries that the build links, or without its "
                "environment, or they do not end by themselves",
                "pass a --benchmark that runs them and keeps the environment",
            ) from None

    def _search(self, build: Callable[[Level, Path], int]) -> Level:
        """Return the level as `run`; `build` builds at a level into a directory, and returns the bytes."""
        low, high, level = 0, len(self.levels), self._first
        while low < high:
            if self._holds(self.levels[level], build):
                high = level
            else:
                low = level + 1
            level = (low + high) // 2
        holding = [one for one, (_, count) in self.tried.items() if self.limit.holds(count)]
        return min(holding, key=lambda one: self.tried[one][0]) if holding else self.levels[-1]

    def _holds(self, level: Level, build: Callable[[Level, Path], int]) -> bool:
        files = self.work / "trial"
        try:
            size = build(level, files)
            with _moved_away(self._tree):
                count = self.limit.count(files)
        finally:
            remove_tree(files)
        self.tried[level] = size, count
        say(f"{self.profile.name}, {level.text}: {size:,} bytes, {self.limit.change(count)}")
        return self.limit.holds(count)

    def _build(self, level: Level, files: Path) -> int:
        """Build in a fresh tree."""
        compilers = replace(self.compilers(self.profile.row(level)), records=False)
        built = self.builder.run(f"{self.profile.name}-trial", compilers, files, lambda tree: None, self.timeout_s)
        return built.sizes.by(self.measure)

    def _relink(self, tree: BuiltTree, level: Level, files: Path) -> int:
        """Repeat the links of a build."""
        tree.relink(level.options, self.timeout_s)
        return self.builder.keep(tree, files).sizes.by(self.measure)


def replace_starts(row: FlagRow, replacements: Mapping[str, str]) -> FlagRow:
    """Return a row whose flags that start with a key are replaced by its value."""

    def replaced(flag: str) -> str:
        return next((new for start, new in replacements.items() if flag.startswith(start)), flag)

    return replace(row, compile_flags=tuple(map(replaced, row.compile_flags)))


@contextmanager
def _moved_away(tree: Path | None) -> Iterator[None]:
    """Have a tree elsewhere for a while: the benchmark runs where builds run."""
    if tree is None:
        yield
        return
    elsewhere = tree.with_name(f"{tree.name}-built")
    tree.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(tree)
