"""Tells what Cargo builds for itself from what it delivers."""

from __future__ import annotations

import re
from pathlib import Path

from components.core.projects.source_tree import is_cargo_directory

_BUILD_SCRIPT = re.compile(r"build[-_]script[-_].*")
_PROC_MACRO = re.compile(rb"rustc_proc_macro_decls_[0-9a-f]+")


def is_tool_of_cargo(root: Path, path: Path) -> bool:
    """Return whether a linked file below the root of a tree only runs in builds of Cargo: a build script, or a library
    of procedural macros, which rustc loads."""
    within = path.relative_to(root)
    if not any(is_cargo_directory(root / parent) for parent in within.parents):
        return False
    if "build" in within.parts and _BUILD_SCRIPT.fullmatch(path.name):
        return True
    return path.suffix == ".so" and _PROC_MACRO.search(path.read_bytes()) is not None
