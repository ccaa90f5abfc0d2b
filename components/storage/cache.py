"""Where downloads are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

from components.console import UserError

VARIABLE = "MLGO_CACHE_DIR"


def default_cache_dir() -> Path:
    """$MLGO_CACHE_DIR, else mlgo-pipeline in the user's cache directory (XDG Base Directory Specification)."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base if base else Path.home() / ".cache").absolute() / "mlgo-pipeline"
    except RuntimeError:
        raise UserError("this user has no home directory to keep downloads in", f"set {VARIABLE}") from None
