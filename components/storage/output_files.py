"""Single files written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from components.console import UserError


def replace_text(path: Path, text: str) -> None:
    """Put a file with this text, UTF-8, in the place of `path`, at once.

    Raises:
        UserError: a directory has that name.
        OSError: it cannot be written; what was there stays, and nothing else is left behind.
    """
    if path.is_dir():
        raise UserError(f"{path} is a directory, and is to be a file", "remove it")
    partial = path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
