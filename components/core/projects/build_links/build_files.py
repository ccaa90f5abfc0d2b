"""The links of a build as its files say them: those of ninja, and of CMake's Makefiles."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from components.core.formats.links import Link
from components.core.projects.build_links.driver import LINKER, make_link
from components.core.projects.compiler_command import NoObjectError, compiler_calls, simple_commands
from components.platform.errors import UserError
from components.platform.processes import supervision

_NINJA = "build.ninja"
_LINK_SCRIPTS = "CMakeFiles/*.dir/link.txt"
_TIMEOUT_S = 300.0
_ARCHIVER = re.compile(r"(?:.*-)?ar(?:-[\d.]+)?(?:\.exe)?")
_APPENDS = re.compile(r"-?[a-zA-Z]*[qr][a-zA-Z]*")

BuildCommands = list[tuple[str, str]]
"""Directory and text of commands of a shell, in the order of the build."""


def commands_of_ninja(build: Path) -> BuildCommands:
    """Return the commands of a directory with a build.ninja; [] if there is none, or no ninja."""
    ninja = shutil.which("ninja")
    if ninja is None or not (build / _NINJA).is_file():
        return []
    with tempfile.TemporaryDirectory(prefix="mlgo-ninja-") as scratch, tempfile.TemporaryFile() as stdout:
        try:
            # -n, and confined, because ninja would otherwise write its logs in the user's build.
            command = [ninja, "-n", "-t", "commands"]
            done = supervision.run(command, _TIMEOUT_S, stdout.fileno(), build, writable=Path(scratch))
        except supervision.ProcessTimeout:
            return []
        stdout.seek(0)
        lines = stdout.read().decode("utf-8", "surrogateescape").splitlines()
    return [(str(build.absolute()), line) for line in lines] if done.returncode == 0 else []


def commands_of_cmake(build: Path) -> BuildCommands:
    """Return the commands that link and archive in a directory of CMake's Makefiles; [] if it is none."""
    commands: BuildCommands = []
    if not (build / "CMakeCache.txt").is_file():
        return commands
    for path in sorted(build.glob(f"**/{_LINK_SCRIPTS}")):
        # Makefiles run the script in the directory that has CMakeFiles.
        directory = str(path.parents[2].absolute())
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        commands += [(directory, line) for line in lines]
    return commands


def links_in(commands: BuildCommands, built: bool = True) -> list[Link]:
    """Return the links among the commands of a build.

    ninja does not print the contents of response files, so links with one that it has removed are left out.

    Args:
        built: only those of files that exist.
    """
    links: list[Link] = []
    for directory, line in commands:
        try:
            for working_directory, driver, arguments in compiler_calls(line, directory, LINKER):
                link = make_link(driver, arguments, working_directory)
                if link is not None and (not built or os.path.isfile(link.output)):
                    links.append(link)
        except (NoObjectError, UserError):
            continue
    return links


def archives_in(commands: BuildCommands) -> dict[str, tuple[str, ...]]:
    """Return the absolute path of each archive among the commands of a build -> the paths of its members' files."""
    archives: dict[str, tuple[str, ...]] = {}
    for directory, line in commands:
        try:
            calls = list(simple_commands(line))
        except NoObjectError:
            continue
        for call in calls:
            if call[0] == "cd" and len(call) == 2:
                directory = os.path.join(directory, call[1])
            elif _ARCHIVER.fullmatch(os.path.basename(call[0])) and (made := _archive(call[1:], directory)):
                path, members = made
                archives[path] = (*archives.get(path, ()), *members)
    return archives


def _archive(arguments: Sequence[str], directory: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the archive that a call of ar appends to, and the files: "ar qc libx.a a.o b.o"."""
    operation, *words = [*arguments, ""]
    files = [os.path.normpath(os.path.join(directory, word)) for word in words if word and word[0] not in "-@"]
    if len(files) < 2 or not _APPENDS.fullmatch(operation):
        return None
    return files[0], tuple(files[1:])
