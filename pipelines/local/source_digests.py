"""Digests of the steps' code, so that a step whose code changed is not reused."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

import components

ROOT = Path(components.__file__).parent.parent
"""The directory that holds the package `components`."""

FLOORS = ("components.core", "components.platform")
"""The packages of what steps share; their subpackages are digested one by one."""

IGNORED_FOLDERS = frozenset({"platform/console"})
"""Concepts that cannot change the content of an artifact, only the output on the terminal."""


class SourceDigests:
    """Digests of the steps' code, as it is on disk at the first request.

    Args:
        root: the directory that holds the package `components`.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._components = root / "components"
        self._imported: dict[str, tuple[str, ...]] = {}
        self._content: dict[str, str] = {}

    def of(self, module: str) -> str:
        """Return the sha256 (hex) over all files of the step and of the concepts that it imports, transitively.

        Args:
            module: the step's package, "components.vocab".
        """
        total = hashlib.sha256()
        for folder in sorted(self.folders(module)):
            total.update(f"{folder} {self._digest(folder)}\n".encode())
        return total.hexdigest()

    def folders(self, module: str) -> frozenset[str]:
        """Return the folders of `components` whose code the step runs, its own included: "vocab", "core/formats"."""
        reached: set[str] = set()
        waiting = [_folder(module)]
        while waiting:
            current = waiting.pop()
            if current not in reached and current not in IGNORED_FOLDERS:
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
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in ("components", *FLOORS):
        return [_folder(f"{node.module}.{alias.name}") for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("components."):
        return [_folder(str(node.module))]
    if isinstance(node, ast.Import):
        return [_folder(alias.name) for alias in node.names if alias.name.startswith("components.")]
    return []


def _folder(module: str) -> str:
    """Return the folder of a module's step or concept, relative to `components`."""
    depth = 2 if module.startswith(tuple(f"{floor}." for floor in FLOORS)) else 1
    return "/".join(module.split(".")[1 : 1 + depth])
