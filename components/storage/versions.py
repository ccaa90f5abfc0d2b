"""Mirrors of what is read from object storage, one for each version, each kept as long as a process reads it.

    $MLGO_CACHE_DIR/gs/BUCKET/PATH.../@<version>/NAME

<version> is a digest of what was there when it was looked at (of an artifact its manifest's, of an object its
generation), so that what another process fetches of a newer version goes next to it and not in its place. A process
that reads holds a shared lock on the directory @<version> until it ends; mirrors of other versions that nobody holds
are removed when the next one is fetched.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from components.storage.directory import make_directory
from components.storage.orphans import hold, is_at, remove_unused
from components.storage.uri import GsUri, mirror

DIGITS = 32
"""Of a digest in a directory's name."""

_held: dict[Path, int] = {}
"""Directory -> descriptor with its lock, which ends with this process."""
_guard = threading.Lock()


def hold_version(uri: GsUri, version: str) -> Path:
    """Return the mirror of one version of what is at `uri`, for this process to read until it ends.

    The path need not exist; its directory does. Removes the mirrors of other versions that no process holds.

    Args:
        version: hexadecimal digits, of which the first `DIGITS` count.

    Raises:
        UserError: the cache cannot be written.
    """
    place = mirror(uri, version[:DIGITS])
    folder = place.parent
    with _guard:
        if folder in _held and not is_at(_held[folder], folder):  # somebody has emptied the cache
            os.close(_held.pop(folder))
        while folder not in _held:
            make_directory(folder)
            if (lock := hold(folder)) is not None:
                _held[folder] = lock
    for other in (*folder.parent.glob("@?*"), *folder.parent.glob(".@*.gone-*")):
        if other != folder:
            remove_unused(other)
    return place
