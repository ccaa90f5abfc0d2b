"""Atomic writes of single files."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from components.core.console import UserError


def replace_text(path: Path, text: str) -> None:
    """Replace `path` atomically by a file with this text, in UTF-8.

    Raises:
        UserError: `path` is a directory.
        OSError: it cannot be written; the previous file stays, and no partial file is left.
    """
    if path.is_dir():
        raise UserError(f"{path} is a directory, but a file is written there", "remove it")
    partial = path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
