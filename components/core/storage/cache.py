"""The cache directory for downloads."""

from __future__ import annotations

import os
from pathlib import Path

from components.core.console import UserError

VARIABLE = "MLGO_CACHE_DIR"


def default_cache_dir() -> Path:
    """Return $MLGO_CACHE_DIR, else mlgo-pipeline in the user's cache directory (XDG Base Directory Specification)."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base if base else Path.home() / ".cache").absolute() / "mlgo-pipeline"
    except RuntimeError:
        raise UserError("this user has no home directory for the download cache", f"set {VARIABLE}") from None
