"""Reads and writes whole files with as few system calls as possible: a corpus has tens of thousands of files."""

from __future__ import annotations

import os

from components.platform.storage.input_files import open_regular


def read(path: str) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: the file cannot be read, or is not a regular file; reading a named pipe would block.
    """
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        return file.readall()  # type: ignore[attr-defined, no-any-return]


def write(path: str, content: bytes | memoryview) -> None:
    """Write a file; create its directory if it does not exist."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        file = os.open(path, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = os.open(path, flags, 0o666)
    try:
        remaining = memoryview(content)
        while remaining:
            remaining = remaining[os.write(file, remaining) :]
    finally:
        os.close(file)
