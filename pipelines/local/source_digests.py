"""Digests of the steps' code, so that a step whose code changed is not reused."""

from __future__ import annotations

import ast
import hashlib
import sys
from pathlib import Path

import components

ROOT = Path(components.__file__).parent.parent
FLOORS = ("components.core", "components.platform")
"""The packages of what steps share; their subpackages are digested one by one."""
IGNORED = frozenset({"components/platform/console"})
"""Packages that cannot change the content of an artifact, only the output on the terminal."""
_PACKAGES = ("components", "pipelines")


class SourceDigests:
    """Digests of the steps' code, as it is on disk at the first request.

    The code of a step is its package and, transitively, the packages that it imports; of modules that lie directly in
    `components`, `pipelines` or a floor, these modules.

    Args:
        root: the directory that holds the packages.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._imported: dict[str, frozenset[str]] = {}
        self._content: dict[str, str] = {}
        self._present: dict[str, list[Path]] = {}

    def of(self, module: str) -> str:
        """Return the sha256 (hex) over all files that the step's code is in.

        Args:
            module: the step's package, "components.vocab" or "pipelines.retrain".
        """
        total = hashlib.sha256()
        for path in sorted(self.paths(module)):
            total.update(f"{path} {self._digest(path)}\n".encode())
        return total.hexdigest()

    def paths(self, module: str) -> frozenset[str]:
        """Return the packages and modules whose code the step runs, its own included: "components/core/formats"."""
        reached: set[str] = set()
        waiting = [_path(module)]
        while waiting:
            current = waiting.pop()
            if current not in reached and current not in IGNORED:
                reached.add(current)
                own = {_path(name) for name in self._imports(current) if name.partition(".")[0] in _PACKAGES}
                waiting += [path for path in sorted(own) if any(self._files(path))]
        return frozenset(reached)

    def third_party_modules(self, module: str) -> frozenset[str]:
        """Return the top-level modules of other projects that the step's code imports: "numpy"."""
        imported = {name.partition(".")[0] for path in self.paths(module) for name in self._imports(path)}
        return frozenset(imported - sys.stdlib_module_names - set(_PACKAGES))

    def _imports(self, path: str) -> frozenset[str]:
        """Return the modules that the files of a package, or a module, import."""
        if path not in self._imported:
            self._imported[path] = frozenset(
                name
                for file in self._files(path)
                if file.suffix == ".py"
                for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file)))
                for name in _imported_modules(node)
            )
        return self._imported[path]

    def _files(self, path: str) -> list[Path]:
        """Return the files of a package, or the file of a module; none if it is neither."""
        if path not in self._present:
            module = self._root / f"{path}.py"
            files = [module] if module.is_file() else (self._root / path).rglob("*") if path.count("/") else ()
            self._present[path] = sorted(file for file in files if file.is_file() and "__pycache__" not in file.parts)
        return self._present[path]

    def _digest(self, path: str) -> str:
        if path not in self._content:
            total = hashlib.sha256()
            for file in self._files(path):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                total.update(f"{file.relative_to(self._root)} {content}\n".encode())
            self._content[path] = total.hexdigest()
        return self._content[path]


def _imported_modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
        return []
    within = node.module in (*_PACKAGES, *FLOORS)
    return [f"{node.module}.{alias.name}" for alias in node.names] if within else [node.module]


def _path(module: str) -> str:
    """Return the path of what a module is digested with: "components/vocab", "components/core/formats"."""
    depth = 3 if module.startswith(tuple(f"{floor}." for floor in FLOORS)) else 2
    return "/".join(module.split(".")[:depth])
