"""Copies a source tree for a build from its beginning, without what an earlier build left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.platform.errors import UserError

_OBJECTS = ("*.o", "*.lo", "*.obj", ".ninja_log", ".ninja_deps")
"""Files from which a build tool would take what it has to compile."""
_CMAKE_CACHE = "CMakeCache.txt"
_MESON_DIRECTORY = "meson-private"


@dataclass(frozen=True)
class SourceTree:
    """A source tree, which is only read.

    Attributes:
        directory: where the build runs.
        excluded: globs of names, and of paths relative to the tree, that are not copied.
    """

    directory: Path
    excluded: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the directory."""
        return self.directory.resolve().name

    def check(self) -> None:
        """Raise UserError if the tree does not exist, or a build configured it for other compilers in place."""
        if not self.directory.is_dir():
            raise UserError(f"{self.directory} is no directory", "run mlgo shrink where your build runs")
        if (self.directory / _CMAKE_CACHE).is_file():
            raise UserError(
                f"{self.directory} is a build directory of CMake, which names the compilers that it was configured for",
                "run mlgo shrink in the source directory, and let its command configure: "
                "mlgo shrink -- sh -c 'cmake -B build && cmake --build build'",
            )

    def build_directories(self) -> list[str]:
        """Return the directories that CMake and Meson configured, relative to the tree. They are not copied: they name
        the compilers and the places that they were configured for."""
        found = []
        for directory, names, _ in os.walk(self.directory):
            for name in sorted(names):
                path = Path(directory, name)
                if _is_configured(path):
                    found.append(path.relative_to(self.directory).as_posix())
            names[:] = [name for name in names if name != ".git" and not _is_configured(Path(directory, name))]
        return found

    def copy(self, into: Path, without: Sequence[Path] = ()) -> None:
        """Copy the tree to `into`, which does not exist.

        Objects and build directories are left out, so that everything is compiled. Times are kept: generated files
        stay newer than their sources. In place of a repository's objects the copy refers to them, because version
        scripts ask git.

        Args:
            without: directories that are not copied.

        Raises:
            UserError: a file cannot be read, or the disk is full.
        """
        left_out = {path.resolve() for path in without}

        def ignore(directory: str, names: list[str]) -> set[str]:
            within = Path(directory).relative_to(self.directory)
            return {name for name in names if self._is_left_out(within / name, left_out)}

        try:
            shutil.copytree(self.directory, into, symlinks=True, ignore=ignore)
            self._refer_to_objects(into / ".git")
        except (shutil.Error, OSError) as error:
            raise UserError(
                f"{self.directory} cannot be copied: {str(error)[:300]}",
                "make it readable and the disk roomy (TMPDIR names the place), or --exclude a part",
            ) from None

    def _is_left_out(self, within: Path, left_out: set[Path]) -> bool:
        if within.parts == (".git", "objects") or any(within.match(glob.rstrip("/")) for glob in self.excluded):
            return True
        if within.parts[0] == ".git":
            return False
        path = self.directory / within
        if path.is_dir():
            return path.resolve() in left_out or (not path.is_symlink() and _is_configured(path))
        return any(within.match(glob) for glob in _OBJECTS)

    def _refer_to_objects(self, repository: Path) -> None:
        objects = self.directory / ".git" / "objects"
        if repository.is_dir() and objects.is_dir():
            info = repository / "objects" / "info"
            info.mkdir(parents=True)
            (info / "alternates").write_text(f"{objects.resolve()}\n", encoding="utf-8")


def _is_configured(directory: Path) -> bool:
    return (directory / _CMAKE_CACHE).is_file() or (directory / _MESON_DIRECTORY).is_dir()
