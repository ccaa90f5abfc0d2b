"""Creates files and links of an artifact strictly below one directory.

Manifests and bucket listings are untrusted input. Names are checked when they are read (manifest.py); here each
directory is opened relative to its parent without following links, and each file must be new, so that a link that
exists nevertheless, or appears meanwhile, is never followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def create_file_below(root: Path, name: str, executable: bool = False) -> BinaryIO:
    """Create the file `name` below `root` and its parent directories; return it open for writing.

    Raises:
        OSError: a file or link of that name exists, or one where a directory is expected.
    """
    with _parent(root, name) as (parent, base):
        descriptor = os.open(base, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=parent)
    if executable:
        os.fchmod(descriptor, 0o755)
    return open(descriptor, "wb")


def create_link(root: Path, name: str, target: str) -> None:
    """Create the symbolic link `name` below `root`; call it after all files. Raises as `create_file_below`."""
    with _parent(root, name) as (parent, base):
        os.symlink(target, base, dir_fd=parent)


@contextmanager
def _parent(root: Path, name: str) -> Iterator[tuple[int, str]]:
    """Create the parent directory of `name`; yield its descriptor and the last component of `name`."""
    *folders, base = name.split("/")
    if any(part in ("", ".", "..") for part in (*folders, base)):
        raise ValueError(f"{name!r} is not the name of a file inside {root}")
    parent = os.open(root, _DIRECTORY)
    try:
        for folder in folders:
            with suppress(FileExistsError):
                os.mkdir(folder, dir_fd=parent)
            below = os.open(folder, _DIRECTORY, dir_fd=parent)
            os.close(parent)
            parent = below
        yield parent, base
    finally:
        os.close(parent)
