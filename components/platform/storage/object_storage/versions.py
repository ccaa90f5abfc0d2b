"""Mirrors of inputs from object storage, one per version, each kept while a process reads it.

    $MLGO_CACHE_DIR/SCHEME/BUCKET/PATH.../@<version>/NAME

<version> is a digest of what was found (of an artifact's manifest, or of an object's version), so that another process
that fetches a newer version stores it next to this one, not in its place. A reading process holds a shared lock on the
directory @<version> until it ends; mirrors of other versions that nobody holds are removed when the next version is
fetched.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from components.platform.storage.directory import make_directory
from components.platform.storage.shared_state.stale_directories import is_at, lock_shared, remove_unused
from components.platform.storage.uri import ObjectUri, mirror

DIGITS = 32
"""Hexadecimal digits of the digest in a directory's name."""

_held: dict[Path, int] = {}
"""Directory -> descriptor that holds its lock until this process ends."""
_guard = threading.Lock()


def hold_version(uri: ObjectUri, version: str) -> Path:
    """Return the mirror of one version of the content at `uri`, locked until this process ends.

    The path need not exist; its directory does. Removes mirrors of other versions that no process holds.

    Args:
        version: hexadecimal digits; only the first `DIGITS` are used.

    Raises:
        UserError: the cache is not writable.
    """
    version_mirror = mirror(uri, version[:DIGITS])
    folder = version_mirror.parent
    with _guard:
        if folder in _held and not is_at(_held[folder], folder):  # the cache was emptied
            os.close(_held.pop(folder))
        while folder not in _held:
            make_directory(folder)
            if (lock := lock_shared(folder)) is not None:
                _held[folder] = lock
    for other in (*folder.parent.glob("@?*"), *folder.parent.glob(".@*.gone-*")):
        if other != folder:
            remove_unused(other)
    return version_mirror
