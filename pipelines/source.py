"""The identity of a step's code, so that changed code is never hidden behind an old result."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

import components

ROOT = Path(components.__file__).parent.parent
"""The directory that holds the package `components`."""

UNCOUNTED = frozenset({"console"})
"""Concepts that cannot change what an artifact holds, only what is said while it is made."""


class SourceDigests:
    """Digests of the code of steps, as it is on disk when first asked for.

    Args:
        root: the directory that holds the package `components`.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._components = root / "components"
        self._imported: dict[str, tuple[str, ...]] = {}
        self._content: dict[str, str] = {}

    def of(self, module: str) -> str:
        """sha256 (hex) over every file of the step's folder and of the concepts it imports, directly or not.

        Args:
            module: the step's package, "components.vocab".
        """
        total = hashlib.sha256()
        for folder in sorted(self.folders(module)):
            total.update(f"{folder} {self._digest(folder)}\n".encode())
        return total.hexdigest()

    def folders(self, module: str) -> frozenset[str]:
        """The folders of `components` whose code runs when the step runs, its own included."""
        reached: set[str] = set()
        waiting = [module.split(".")[1]]
        while waiting:
            current = waiting.pop()
            if current not in reached and current not in UNCOUNTED:
                reached.add(current)
                waiting += self._imports(current)
        return frozenset(reached)

    def _imports(self, folder: str) -> tuple[str, ...]:
        if folder not in self._imported:
            found: set[str] = set()
            for path in (self._components / folder).rglob("*.py"):
                tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
                found.update(name for node in ast.walk(tree) for name in _imported_folders(node))
            self._imported[folder] = tuple(sorted(name for name in found if (self._components / name).is_dir()))
        return self._imported[folder]

    def _digest(self, folder: str) -> str:
        if folder not in self._content:
            total = hashlib.sha256()
            for path in sorted((self._components / folder).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    content = hashlib.sha256(path.read_bytes()).hexdigest()
                    total.update(f"{path.relative_to(self._components)} {content}\n".encode())
            self._content[folder] = total.hexdigest()
        return self._content[folder]


def _imported_folders(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "components":
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("components."):
        return [str(node.module).split(".")[1]]
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[1] for alias in node.names if alias.name.startswith("components.")]
    return []
