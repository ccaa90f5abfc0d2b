"""Writes of objects that have several writers: manifests of artifacts, and versioned documents.

docs/storage.md, "Shared state", has what holds and what is assumed of the store.
"""

from __future__ import annotations

from components.platform.storage.downloads.retry import GaveUp, retry
from components.platform.storage.object_storage.object_store import StorageError, StoredObject, VersionConflict
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import ObjectUri

PATIENCE_S = 30.0
_PAUSES_S = (0.1, 4.0)


class _OthersWrite(Exception):
    """A write was refused although the object still has the version that was read."""


def write_shared(uri: ObjectUri, content: bytes, version: str) -> StoredObject:
    """Replace an object if it has the version that was read.

    Args:
        content: has a random word, so that no two writes are equal. An object with this content was written by this
            call, even if the answer was lost, and no version comes back where versions are digests of the content.
        version: NO_VERSION if there was no object.

    Raises:
        VersionConflict: another writer was first; this content does not appear later.
        StorageError: object storage refuses or does not answer; the content may be there, or appear later.
    """
    store = store_of(uri)

    def write() -> StoredObject:
        try:
            return store.write(uri, content, version)
        except VersionConflict:
            present, now = store.read(uri)
        if present == content:
            return StoredObject(uri.path, len(content), now)
        if now != version:
            raise VersionConflict(uri)
        raise _OthersWrite  # S3 answers 409 while another write is under way, which may fail

    try:
        return retry(write, lambda error: isinstance(error, _OthersWrite), PATIENCE_S, lambda *_: None, *_PAUSES_S)
    except GaveUp:
        raise StorageError(
            f"{uri} cannot be written: for {PATIENCE_S:.0f} s object storage has said that others write it",
            "run the same command again",
        ) from None
