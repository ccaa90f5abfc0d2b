"""The profile of a benchmark by the user's gcc, with which it compiles what is not hot for size.

gcc compiles functions that the benchmark does not run for size, at any level (GCC's manual, -fprofile-use); the others
keep the level of the user's build. How much of the profile is hot is a parameter of the link. Where clang's code for
speed is slower than gcc's, as for codecs, this is what holds a limit.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from components.core.projects.flags.rows import GCC_LEVELS, FlagRow
from components.core.projects.flags.types import CompilerOfRow
from components.platform.processes.output import capture
from components.shrink.speed.slowdown import PROFILE_TIMEOUT_S, Level, NoProfileError

PROFILE_DIRECTORY = "benchmark-gcda"
"""The profile in the output, which the delivered compilers use."""
_USE, _PREFIX = "-fprofile-use=", "-fprofile-prefix-path="
_QUIET = ("-Wno-missing-profile", "-Wno-coverage-mismatch")
"""Files that the benchmark does not run have no profile; what the build generates may differ from build to build."""
_PERMILLES = (50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 990, 999)
"""Shares of the profile's counts that are hot, in thousandths (gcc's default is 990), from the smallest build to the
fastest."""
_FIRST = _PERMILLES.index(900)


@dataclass
class GccProfile:
    """See `slowdown.Profile`.

    Attributes:
        sized: a row of gcc for size.
        directory: the profile, a file for each object by its path, relative to `root`.
        root: where builds run.
    """

    sized: FlagRow
    directory: Path
    root: Path
    name: str = "gcc-fast"
    compiler: CompilerOfRow = "gcc"

    def instrumented(self, directory: Path, root: Path) -> FlagRow:
        flags = (f"-fprofile-generate={directory}", f"{_PREFIX}{root}", "-fprofile-update=prefer-atomic", *_QUIET)
        return replace(self.sized, name="instrumented", compile_flags=flags, link_flags=(), lto=False)

    def variables(self, directory: Path) -> tuple[str, ...]:
        return ()

    def finish(self, directory: Path) -> tuple[Sequence[Level], int]:
        if not any(directory.glob("*.gcda")):
            raise NoProfileError
        directory.rename(self.directory)
        return [_level(permille) for permille in _PERMILLES], _FIRST

    def row(self, level: Level | None) -> FlagRow:
        assert self.sized.program is not None
        own_level = (flag for flag in self.sized.compile_flags if flag not in GCC_LEVELS)
        gives = f"{self.sized.program.name} at your level with LTO and a profile of the benchmark"
        return replace(
            self.sized,
            name=self.name,
            gives=f"{gives}{f': {level.text}' if level else ''}",
            compile_flags=(*own_level, f"{_USE}{self.directory}", f"{_PREFIX}{self.root}", *_QUIET),
            link_flags=(*self.sized.link_flags, *(level.options if level else ())),
        )

    def deliver(self, row: FlagRow, directory: Path, published: Path, source: Path) -> FlagRow:
        shutil.copytree(self.directory, directory / PROFILE_DIRECTORY)
        moved = {_USE: f"{_USE}{published / PROFILE_DIRECTORY}", _PREFIX: f"{_PREFIX}{source}"}
        flags = tuple(
            next((new for start, new in moved.items() if flag.startswith(start)), flag) for flag in row.compile_flags
        )
        return replace(row, compile_flags=flags)


def _level(permille: int) -> Level:
    return Level(f"{permille / 10:g}% hot", (f"--param=hot-bb-count-ws-permille={permille}",))


def has_relative_profiles(gcc: Path) -> bool:
    """Return whether profiles of one directory can be used in another: from gcc 12 on."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "main.c"
        source.touch()
        return capture([gcc, "-E", f"{_PREFIX}/", source], PROFILE_TIMEOUT_S).returncode == 0
