"""Identifies the code of this project that a process runs, so that workers with another version are refused."""

from __future__ import annotations

import hashlib
from functools import cache

from components.platform.processes.python_module import ROOT

_PACKAGE = "components"
_WITHOUT_EFFECT = frozenset({".md", ".pyc"})


@cache
def source_digest() -> str:
    """Return the sha256 (hex) of the names and contents of the package's files, as they are at the first call."""
    total = hashlib.sha256()
    for path in sorted((ROOT / _PACKAGE).rglob("*")):
        name = path.relative_to(ROOT)
        hidden = any(part.startswith((".", "__pycache__")) for part in name.parts)
        if not hidden and path.suffix not in _WITHOUT_EFFECT and path.is_file():
            total.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
