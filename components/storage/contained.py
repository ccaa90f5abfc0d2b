"""Creates files and links of an artifact below a directory, and never anywhere else.

A manifest, or a listing of a bucket, is written by others. Names are checked when it is read
(components.storage.manifest); here each directory is opened below the one before without following links and each file
must be new, so that a link that is there all the same, or comes meanwhile, leads nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def create_file(root: Path, name: str, executable: bool = False) -> BinaryIO:
    """Create the file `name` below `root` and the directories that it lies in; return it open for writing.

    Raises:
        OSError: there is a file or a link of that name, or one where a directory is expected.
    """
    with _parent(root, name) as (parent, base):
        descriptor = os.open(base, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=parent)
    if executable:
        os.fchmod(descriptor, 0o755)
    return open(descriptor, "wb")


def create_link(root: Path, name: str, target: str) -> None:
    """Create the symbolic link `name` below `root`; to be called after all files are there. Raises as `create_file`."""
    with _parent(root, name) as (parent, base):
        os.symlink(target, base, dir_fd=parent)


@contextmanager
def _parent(root: Path, name: str) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the directory that `name` lies in, which is made, and the last component of `name`."""
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
