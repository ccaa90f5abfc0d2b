"""Keeps the outputs of Bazel in the copy of a workspace that is built, and those of one build apart from another's."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

WORKSPACE_FILES = ("MODULE.bazel", "WORKSPACE.bazel", "WORKSPACE")
"""Files of which the root of a workspace has one."""
_OUTPUT_BASE = ".mlgo-bazel"
_OPTIONS = ".bazelrc"
_IGNORED = ".bazelignore"


def is_workspace(directory: Path) -> bool:
    return any((directory / name).is_file() for name in WORKSPACE_FILES)


def confine_bazel(workspace: Path, title: str) -> None:
    """Append to the options of a copied workspace what lets any `bazel build` in it be one of several builds.

    All outputs are in the copy, and no server stays. The actions are not sandboxed: the compilers are in /tmp, of which
    a sandbox of Bazel 7 has another one. They are not those of other builds in a cache: a compiler is known by its
    path, which all builds have.
    """
    output_base = shlex.quote(str(workspace / _OUTPUT_BASE))
    options = (
        f"startup --batch --output_base={output_base}",
        f"build --spawn_strategy=local --action_env=MLGO_BUILD={shlex.quote(title)}",
    )
    _append(workspace / _OPTIONS, options)
    _append(workspace / _IGNORED, (_OUTPUT_BASE,))  # has packages of other repositories


def _append(path: Path, lines: tuple[str, ...]) -> None:
    """Append lines to a file, which may be a link to one outside of the copy."""
    text = path.read_bytes() if path.is_file() else b""
    path.unlink(missing_ok=True)
    path.write_bytes(b"\n".join([*text.splitlines(), *map(os.fsencode, lines), b""]))
