"""The links of a build as its files say them: those of ninja, and of CMake's Makefiles."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from components.core.formats.links import Link
from components.core.projects.build_links.driver import make_link
from components.core.projects.compiler_command import NoObjectError, compiler_calls
from components.platform.errors import UserError
from components.platform.processes import supervision

_NINJA = "build.ninja"
_LINK_SCRIPTS = "CMakeFiles/*.dir/link.txt"
_TIMEOUT_S = 300.0


def links_of_ninja(build: Path) -> list[Link]:
    """Return the links of a directory with a build.ninja, in the order of the build; [] if there is none, or no ninja.

    ninja does not print the contents of response files, so links with one that it has removed are left out.
    """
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
    return list(_links(lines, str(build.absolute()))) if done.returncode == 0 else []


def links_of_cmake(build: Path) -> list[Link]:
    """Return the links of a directory of CMake's Makefiles; [] if it is none."""
    links: list[Link] = []
    if not (build / "CMakeCache.txt").is_file():
        return links
    for path in sorted(build.glob(f"**/{_LINK_SCRIPTS}")):
        # Makefiles run the script in the directory that has CMakeFiles.
        directory = str(path.parents[2].absolute())
        links += _links(path.read_text(encoding="utf-8", errors="surrogateescape").splitlines(), directory)
    return links


def _links(lines: Iterable[str], directory: str) -> Iterator[Link]:
    """Yield the links of existing files among commands of a shell that run in a directory."""
    for line in lines:
        try:
            for working_directory, driver, arguments in compiler_calls(line, directory):
                link = make_link(driver, arguments, working_directory)
                if link is not None and os.path.isfile(link.output):
                    yield link
        except (NoObjectError, UserError):
            continue
