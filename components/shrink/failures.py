"""Says what to do when the user's own build fails."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from components.core.projects.source_tree import SourceTree
from components.platform.processes.build_tools import read_end

_MISSING = re.compile(
    r"(?i)no such file|not found|no rule to make target|(?:cannot|could not|can't) (?:find|open|cd)|does not exist"
    r"|not an existing"
)
_MESSAGE_LINES = 3
"""Lines of a message: CMake names the file below an empty line."""
_PATH = re.compile(r"(?<![\w.+@-])(?:/|\.\./|[\w.+@-][\w.+@/-]*/\.\./)[\w.+@/-]*[\w+@-]")


def failed_build_remedy(source: SourceTree, root: Path, log: Path) -> str:
    """Return what to do about the failure of the user's own build, by what its log says.

    Args:
        root: the copy of the source tree that it ran in.
    """
    if missing := _missing_above(source.directory.resolve(), root, log):
        tree = source.directory.resolve()
        place = Path(os.path.commonpath((tree, missing)))
        return (
            f"see {log}; only {tree} is copied, and the build needs {missing}: run it in {place}: "
            f"mlgo shrink 'cd {shlex.quote(str(tree.relative_to(place)))} && ...'"
        )
    if (source.directory / "debian" / "control").is_file():
        place = source.directory.resolve()
        here = "." if place == Path.cwd() else shlex.quote(str(place))
        return f"see {log}; apt-get build-dep {here} installs the packages that the build needs"
    return f"see {log}; make the build work without mlgo first"


def _missing_above(tree: Path, root: Path, log: Path) -> Path | None:
    """Return the first path above the tree that a message of the build says is missing, and that exists there."""
    lines = read_end(log).splitlines()
    for index, line in enumerate(lines):
        if _MISSING.search(line):
            for path in _PATH.findall("\n".join(lines[index : index + _MESSAGE_LINES])):
                if os.path.exists(root / path):
                    continue
                parts = Path(os.path.relpath(root / path, root)).parts
                above = parts.count(os.pardir)
                if os.path.exists(root.joinpath(*parts[above:])):
                    continue  # from a directory of the tree
                for first in reversed(range(above)):  # a directory of the tree may have named it, too
                    place = Path(os.path.normpath(tree.joinpath(*parts[first:])))
                    if os.path.exists(place) and not place.is_relative_to(tree):
                        return place
    return None
