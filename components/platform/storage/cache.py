"""The cache directory for downloads."""

from __future__ import annotations

import os
from pathlib import Path

from components.platform.console.process_environment import encoding_problem
from components.platform.errors import UserError

VARIABLE = "MLGO_CACHE_DIR"
_NAME = "mlgo-pipeline"


def default_cache_dir() -> Path:
    """Return $MLGO_CACHE_DIR, else mlgo-pipeline in the user's cache directory (XDG Base Directory Specification)."""
    try:
        chosen = os.environ.get(VARIABLE) or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", _NAME)
    except RuntimeError:
        raise UserError("this user has no home directory for the download cache", f"set {VARIABLE}") from None
    if problem := encoding_problem(str(chosen)):
        raise UserError(f"the directory for downloads {str(chosen)!r} {problem[0]}", f"{problem[1]}, or set {VARIABLE}")
    return Path(chosen).absolute()


def unusable_cache(path: str | Path, reason: str, exists: bool = True) -> UserError | None:
    """Return the error that the cache cannot be used; None if something else is wrong.

    Args:
        path: a path that cannot be used: in the cache, or a parent of a cache that does not exist.
        exists: whether the reason can be one where the cache's directory exists.
    """
    try:
        cache = default_cache_dir()
    except UserError:
        return None
    path, absent = Path(path).absolute(), not cache.is_dir()
    if not ((path.is_relative_to(cache) and (exists or absent)) or (cache.is_relative_to(path) and absent)):
        return None
    prefix = "" if path == cache else f"{path}: "
    return UserError(
        f"the cache {cache} cannot be used: {prefix}{reason}", f"set {VARIABLE} to a directory that you can write to"
    )
