"""Copies a source tree for a build from its beginning, without what an earlier build left."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.compiler.objects.elf import ET_REL, TYPE_BYTES, elf_type
from components.core.formats.bitcode import is_bitcode
from components.platform.errors import UserError
from components.platform.storage.input_files import open_regular
from components.platform.storage.manifest import MANIFEST

_OBJECT_SUFFIXES = (".o", ".lo", ".obj")
_UNUSUAL = re.compile(r"[^\w.+-]")
_NINJA_LOGS = (".ninja_log", ".ninja_deps")
_CMAKE_CACHE, _CMAKE_FILES, _CMAKE_FILE = "CMakeCache.txt", "CMakeFiles", "CMakeLists.txt"
_MESON_DIRECTORY, _CONFIG_STATUS = "meson-private", "config.status"
_BAZEL_OUTPUTS = "execroot"
"""Part of the paths that bazel-bin and the other links of a built workspace of Bazel name."""
SHRINK_FILE = "shrink.json"
"""File that every output of `mlgo shrink` has."""
_CARGO_FILE = ".rustc_info.json"
"""File of each directory that Cargo builds in."""
_GIT = ".git"
_PYTHON_ENVIRONMENT = "pyvenv.cfg"
_GIT_OMITTED = ("objects", "modules", "lfs", "annex", "worktrees")
"""Parts of a repository that are large: the copy refers to the objects; submodules have no history there."""


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

    @property
    def unique_name(self) -> str:
        """A name for files about this tree, wherever another of the same name is; without blanks, as builds want."""
        return f"{_UNUSUAL.sub('_', self.name)}-{hashlib.sha256(os.fsencode(self.directory.resolve())).hexdigest()[:8]}"

    def check(self, command: str) -> None:
        """Raise UserError if the tree does not exist, or was configured in place and `command` does not do that again:
        the copy would build in the tree itself, by the compilers that it was configured for."""
        if not self.directory.is_dir():
            raise UserError(f"--source {self.directory} is no directory", "pass the directory that your build runs in")
        cached = (self.directory / _CMAKE_CACHE).is_file()
        if cached and not ((self.directory / _CMAKE_FILE).is_file() and "cmake" in command):
            raise UserError(
                f"{self.directory} is a build directory of CMake, which names the compilers that it was configured for",
                "take the source directory in its place, and let the command configure, with your options: "
                "cmake -B build && cmake --build build",
            )
        if (self.directory / _CONFIG_STATUS).is_file() and "configure" not in command and "autogen" not in command:
            raise UserError(
                f"{self.directory} was configured in place, for its own compilers and its own path",
                f"let the command configure again: ./configure && {command}",
            )

    def build_directories(self) -> list[str]:
        """Return the directories that CMake and Meson configured, relative to the tree. They are not copied: they name
        the compilers and the places that they were configured for."""
        found = []
        for directory, names, _ in os.walk(self.directory):
            within = {name: Path(directory, name).relative_to(self.directory) for name in names}
            kept = {name: path for name, path in within.items() if not self._is_excluded(path)}
            configured = [name for name in kept if _is_configured(Path(directory, name))]
            found += [kept[name].as_posix() for name in configured]
            names[:] = [name for name in kept if name != _GIT and name not in configured]
        return sorted(found)

    def copy(self, into: Path, omitted: Sequence[Path] = (), programs: Sequence[str] = ()) -> None:
        """Copy the tree to `into`, which does not exist. UserError if a file cannot be read, or the disk is full.

        Objects, build directories, Cargo's among them, links to Bazel's, outputs of `mlgo shrink` and virtual
        environments are left out, so that everything is compiled. Times are kept: generated files stay newer than their
        sources. Links to places in the tree are links in the copy; links to other directories stay, but those that a
        build writes to, which are empty or have its files, become empty directories. In place of a repository's objects
        the copy refers to them, because version scripts ask git; a worktree and a submodule, whose state is elsewhere,
        become a tree without git.

        Args:
            omitted: directories that are not copied.
            programs: files that are not copied, relative to the tree, because the build makes them.
        """
        omitted_places = {path.resolve() for path in omitted}

        def ignore(directory: str, names: list[str]) -> set[str]:
            within = Path(directory).relative_to(self.directory)
            return {
                name
                for name in names
                if self._is_omitted(within / name, omitted_places) or (within / name).as_posix() in programs
            }

        try:
            shutil.copytree(self.directory, into, symlinks=True, ignore=ignore)
            self._redirect_links(into)
            self._refer_to_objects(into / _GIT)
        except (shutil.Error, OSError) as error:
            raise UserError(
                f"{self.directory} cannot be copied: {str(error)[:300]}",
                "make it readable and the disk roomy (TMPDIR names the place), or --exclude a part",
            ) from None

    def _is_excluded(self, within: Path) -> bool:
        return any(within.match(glob.rstrip("/")) for glob in self.excluded)

    def _is_omitted(self, within: Path, omitted_places: set[Path]) -> bool:
        path = self.directory / within
        if self._is_excluded(within):
            return True
        if within.name == _GIT and (path.is_symlink() or not path.is_dir()):
            return True
        if _GIT in within.parts:
            return within.parts[0] == _GIT and len(within.parts) == 2 and within.name in _GIT_OMITTED
        kind = path.lstat().st_mode
        if stat.S_ISLNK(kind):
            return _BAZEL_OUTPUTS in Path(os.readlink(path)).parts
        if within.parts in ((_CMAKE_CACHE,), (_CMAKE_FILES,)):
            return True  # of a configuration in place, which `check` lets the command do again
        if stat.S_ISDIR(kind):
            is_environment = os.path.isfile(path / _PYTHON_ENVIRONMENT)  # which names its own place
            is_output = (path / SHRINK_FILE).is_file() and (path / MANIFEST).is_file()
            is_built = is_cargo_directory(path) or _is_configured(path) or is_output
            return path.resolve() in omitted_places or is_built or is_environment
        return not stat.S_ISREG(kind) or within.name in _NINJA_LOGS or _is_object(path)

    def _redirect_links(self, copy: Path) -> None:
        """Let the links of the copy name the copy's places, or those outside of the tree that they named."""
        tree = self.directory.resolve()
        for directory, names, files in os.walk(copy):
            for name in (*names, *files):
                path = Path(directory, name)
                if not path.is_symlink():
                    continue
                target = os.readlink(path)
                place = Path(os.path.normpath(self.directory.absolute() / path.relative_to(copy).parent / target))
                root = next((root for root in (tree, self.directory.absolute()) if place.is_relative_to(root)), None)
                if root is None:
                    path.unlink()
                    if _is_built_in(place):
                        path.mkdir()
                    else:
                        path.symlink_to(place)
                elif os.path.isabs(target):
                    path.unlink()
                    path.symlink_to(copy / place.relative_to(root))

    def _refer_to_objects(self, repository: Path) -> None:
        objects = self.directory / _GIT / "objects"
        if repository.is_dir() and objects.is_dir():
            info = repository / "objects" / "info"
            info.mkdir(parents=True, exist_ok=True)
            (info / "alternates").write_text(f"{objects.resolve()}\n", encoding="utf-8")


def remove_tree(directory: Path) -> None:
    """Remove a directory, if it exists, also if parts of it are not writable. UserError if something remains."""

    def retry(function: Callable[..., Any], path: str, _error: Any) -> None:
        for place in (os.path.dirname(path), path):
            if not os.path.islink(place) and os.path.isdir(place):
                os.chmod(place, 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)

    if not directory.is_dir():
        return
    try:
        shutil.rmtree(directory, onerror=retry)
    except OSError as error:
        raise UserError(f"{directory} cannot be removed: {error.strerror}", "remove it by hand") from None


def is_cargo_directory(directory: Path) -> bool:
    """Return whether Cargo builds in a directory."""
    return os.path.isfile(directory / _CARGO_FILE)


def _is_configured(directory: Path) -> bool:
    # os.path: Path's methods raise if the directory cannot be read.
    return os.path.isfile(directory / _CMAKE_CACHE) or os.path.isdir(directory / _MESON_DIRECTORY)


def _is_built_in(place: Path) -> bool:
    """Return whether a directory is empty, or has configuration, objects or programs of a build."""
    try:
        names = os.listdir(place)
    except OSError:
        return False
    return (
        not names
        or _is_configured(place)
        or any(_is_object(place / name) or elf_type(_start(place / name)) for name in names)
    )


def _is_object(path: Path) -> bool:
    """Return whether a file is an object, by its name and its content: teapot.obj may be a drawing."""
    if path.suffix not in _OBJECT_SUFFIXES:
        return False
    start = _start(path)
    libtool = start[:2] == b"# " and path.suffix == ".lo"  # text that begins with a comment
    return elf_type(start) == ET_REL or libtool or is_bitcode(start)


def _start(path: Path) -> bytes:
    """Return the first bytes of a file, none of one that cannot be read: copying it says what is wrong."""
    try:
        with os.fdopen(open_regular(path), "rb") as stream:
            return stream.read(TYPE_BYTES)
    except OSError:
        return b""
