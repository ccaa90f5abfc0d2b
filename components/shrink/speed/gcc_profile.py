"""The profile of a benchmark by the user's gcc, with which it compiles what is not hot for size.

gcc compiles functions that a profile says never run for size, at any level (GCC's manual, -fprofile-use); the others,
and files without a profile, keep the level of the user's build. So each program runs once besides the benchmark: then
its files have one. How much of the profile is hot is a parameter of the link. Where clang's code for speed is slower
than gcc's, as for codecs, this is what holds a limit.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from components.core.projects.flags.rows import GCC_LEVELS, FlagRow
from components.core.projects.flags.types import CompilerOfRow
from components.platform.processes import sandbox
from components.platform.processes.output import capture
from components.platform.processes.supervision import ProcessTimeout, run
from components.shrink.builds.built_tree import BuiltTree
from components.shrink.speed.slowdown import PROFILE_TIMEOUT_S, Level, NoProfileError, replace_starts

PROFILE_DIRECTORY = "benchmark-gcda"
"""The profile in the output, which the delivered compilers use."""
_USE, _PREFIX = "-fprofile-use=", "-fprofile-prefix-path="
_NO_PROFILE = "-Wno-missing-profile"
"""Nothing ran the file. The delivered compilers warn: it may have another path than it had."""
_QUIET = ("-Wno-error", "-Wno-coverage-mismatch", _NO_PROFILE)
"""What gcc warns of depends on a profile; what the build generates may differ from build to build."""
_CORRECT = "-fprofile-correction"
"""Counts of threads may contradict each other."""
_START_S = 2.0
_MAX_STARTS = 100
_PERMILLES = (50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 990, 999)
"""Shares of the profile's counts that are hot, in thousandths (gcc's default is 990), from the smallest build to the
fastest."""
_FIRST = _PERMILLES.index(900)
_KINDS = ("program", "shared library")


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

    def start_programs(self, tree: BuiltTree, directory: Path) -> None:
        if sandbox.kind() == "none":
            return
        paths = {kind: [tree.root / name for name, one in tree.kinds.items() if one == kind] for kind in _KINDS}
        libraries = os.pathsep.join(dict.fromkeys(str(path.parent) for path in paths["shared library"]))
        for program in paths["program"][:_MAX_STARTS]:
            environment = ("/usr/bin/env", *self.variables(directory), f"LD_LIBRARY_PATH={libraries}")
            command = ("timeout", f"{_START_S:.0f}", str(program), "--version")
            with suppress(ProcessTimeout):
                run((*environment, *command), 2 * _START_S, cwd=tree.root, writable=directory, daemons=True)

    def variables(self, directory: Path) -> tuple[str, ...]:
        return ("GCOV_PREFIX=", "GCOV_PREFIX_STRIP=0")

    def finish(self, directory: Path) -> tuple[Sequence[Level], int]:
        if not any(directory.rglob("*.gcda")):
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
            compile_flags=(*own_level, f"{_USE}{self.directory}", f"{_PREFIX}{self.root}", _CORRECT, *_QUIET),
            link_flags=(*self.sized.link_flags, *(level.options if level else ())),
        )

    def deliver(self, row: FlagRow, directory: Path, published: Path, source: Path) -> FlagRow:
        profile = directory / PROFILE_DIRECTORY
        shutil.copytree(self.directory, profile)
        if (absolute := profile / self.root.relative_to("/")).is_dir():  # of objects that the build names absolutely
            moved = profile / source.relative_to("/")
            moved.parent.mkdir(parents=True, exist_ok=True)
            absolute.rename(moved)
        use, prefix = f"{_USE}{published / PROFILE_DIRECTORY}", f"{_PREFIX}{source}"
        return replace_starts(row, {_USE: use, _PREFIX: prefix, _NO_PROFILE: "-Wmissing-profile"})


def _level(permille: int) -> Level:
    return Level(f"{permille / 10:g}% hot", (f"--param=hot-bb-count-ws-permille={permille}",))


def has_relative_profiles(gcc: Path) -> bool:
    """Return whether profiles of one directory can be used in another: from gcc 12 on."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "main.c"
        source.touch()
        return capture([gcc, "-E", f"{_PREFIX}/", source], PROFILE_TIMEOUT_S).returncode == 0
