"""Whole files in and out, by the cheapest calls: a corpus has tens of thousands of them."""

from __future__ import annotations

import os

from components.storage.input_files import open_regular


def read(path: str) -> bytes:
    """Return the content of a regular file. OSError, also for what is none: a named pipe would be waited for."""
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        return file.readall()  # type: ignore[attr-defined, no-any-return]


def write(path: str, content: bytes | memoryview) -> None:
    """Write a file, and make its directory if there is none yet."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        file = os.open(path, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = os.open(path, flags, 0o666)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(file, left) :]
    finally:
        os.close(file)
