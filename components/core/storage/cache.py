"""The cache directory for downloads."""

from __future__ import annotations

import os
from pathlib import Path

from components.core.console import UserError
from components.core.console.process_environment import encoding_problem

VARIABLE = "MLGO_CACHE_DIR"
_NAME = "mlgo-pipeline"


def default_cache_dir() -> Path:
    """Return $MLGO_CACHE_DIR, else mlgo-pipeline in the user's cache directory (XDG Base Directory Specification)."""
    try:
        chosen = os.environ.get(VARIABLE) or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", _NAME)
    except RuntimeError:
        raise UserError("this user has no home directory for the download cache", f"set {VARIABLE}") from None
    if found := encoding_problem(str(chosen)):
        raise UserError(f"the directory for downloads {str(chosen)!r} {found[0]}", f"{found[1]}, or set {VARIABLE}")
    return Path(chosen).absolute()
