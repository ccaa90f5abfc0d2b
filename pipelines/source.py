"""The identity of a step's code, so that changed code is never hidden behind an old result."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

import components

ROOT = Path(components.__file__).parent

UNCOUNTED = frozenset({"console"})
"""Concepts that cannot change what an artifact holds, only what is said while it is made."""


def source_digest(module: str) -> str:
    """sha256 (hex) over every file of the step's folder and of the concepts it imports, directly or not.

    Args:
        module: the step's package, "components.vocab".
    """
    total = hashlib.sha256()
    for folder in sorted(reached_folders(module.split(".")[1])):
        total.update(f"{folder} {_folder_digest(folder)}\n".encode())
    return total.hexdigest()


def reached_folders(folder: str) -> frozenset[str]:
    """The folders of `components` whose code runs when the step `folder` runs, itself included."""
    reached: set[str] = set()
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        if current not in reached and current not in UNCOUNTED:
            reached.add(current)
            waiting += _imported_folders(current)
    return frozenset(reached)


@cache
def _imported_folders(folder: str) -> tuple[str, ...]:
    found: set[str] = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            if isinstance(node, ast.ImportFrom) and node.module == "components":
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("components."):
                found.add(str(node.module).split(".")[1])
            elif isinstance(node, ast.Import):
                found.update(a.name.split(".")[1] for a in node.names if a.name.startswith("components."))
    return tuple(sorted(name for name in found if (ROOT / name).is_dir()))


@cache
def _folder_digest(folder: str) -> str:
    total = hashlib.sha256()
    for path in sorted((ROOT / folder).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{path.relative_to(ROOT)} {content}\n".encode())
    return total.hexdigest()
