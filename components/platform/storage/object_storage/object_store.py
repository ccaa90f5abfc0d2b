"""The operations on object storage that artifacts, working directories and versioned documents need.

There is an implementation for each scheme: Cloud Storage (gcs.py), S3 and what speaks its protocol (s3.py), and local
directories that Kubeflow Pipelines copies (kfp_local.py). What makes publication safe is `ObjectStore.write`: it writes
an object only if the object still has the version that the writer found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Protocol

from components.platform.errors import UserError
from components.platform.storage.uri import ObjectUri

WORKERS = 8
"""Requests of a transfer at the same time. Below the size of the clients' connection pools, which warn when they
overflow."""
NO_VERSION = ""
"""Version of an object that does not exist."""
STORAGE_PATIENCE_S = 900.0
"""How long a training, and each compile of it, waits for object storage that has answered before."""


class StorageError(UserError):
    """Object storage refuses or does not answer; this says nothing about what is stored."""


class ObjectMissing(UserError):
    """The object does not exist, or does not have the required version."""

    def __init__(self, uri: ObjectUri, why: str = "there is no such object") -> None:
        super().__init__(f"{uri}: {why}", f"check the name; is there a bucket {uri.bucket}?")
        self.uri, self.why = uri, why

    def __reduce__(self) -> tuple[type[ObjectMissing], tuple[ObjectUri, str]]:
        return ObjectMissing, (self.uri, self.why)  # workers pass errors on to other processes


class VersionConflict(UserError):
    """The object has another version than the writer found, or this writer's own, if the first answer was lost, or
    another write was under way."""

    def __init__(self, uri: ObjectUri) -> None:
        super().__init__(f"{uri} was modified concurrently", "run the same command again")
        self.uri = uri

    def __reduce__(self) -> tuple[type[VersionConflict], tuple[ObjectUri]]:
        return VersionConflict, (self.uri,)


@dataclass(frozen=True)
class StoredObject:
    """Metadata of an object, known without reading it.

    Attributes:
        name: path in the bucket.
        version: opaque; changes whenever the content does. It identifies an object on its server only.
        crc32c: as in a manifest; "" if the server does not compute it.
        updated: when it was written, by the server's clock; None if the answer does not say it.
    """

    name: str
    size_bytes: int
    version: str
    crc32c: str = ""
    updated: datetime | None = None


class ObjectStore(Protocol):
    """Object storage of one scheme.

    Every method raises StorageError if the server refuses or does not answer, and UserError if there is no such bucket.
    Requests that fail for a moment are repeated. All writes can be: of an object that has one writer, or conditional.
    """

    def read(self, uri: ObjectUri) -> tuple[bytes | None, str]:
        """Return the content of an object and its version; None and NO_VERSION if there is no object."""

    def read_range(self, uri: ObjectUri, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes [start, end) of an object, of which all exist. Raises ObjectMissing."""

    def head(self, uri: ObjectUri) -> StoredObject | None:
        """Return the description of an object, None if there is none."""

    def objects(self, folder: ObjectUri) -> list[StoredObject]:
        """Return the objects below a folder (or of the bucket, if its path is empty), in the order of their names."""

    def write(self, uri: ObjectUri, content: bytes, version: str) -> StoredObject:
        """Write a JSON object if the present one has this version (NO_VERSION: if there is none).

        `write_shared` (shared_write.py) is what writers call.

        Raises:
            VersionConflict: the store refuses the write.
        """

    def require_writable(self, uri: ObjectUri) -> None:
        """Check that `write` works for objects next to `uri`; a writer asks before it starts to work.

        Raises:
            StorageError: this account may not write, or the server ignores the condition of `write`.
            UserError: there is no such bucket.
        """

    def upload(self, files: Sequence[tuple[Path, ObjectUri]]) -> list[datetime]:
        """Upload files, several at a time; return when each was written, as far as known, by the server's clock."""

    def download(self, objects: Sequence[tuple[ObjectUri, Callable[[], BinaryIO]]]) -> None:
        """Download objects, several at a time, each to the file that its function opens. Raises ObjectMissing."""

    def download_to(self, uri: ObjectUri, path: Path, version: str = NO_VERSION) -> None:
        """Download an object to the file `path`. ObjectMissing also if it has another version than the given one."""

    def delete(self, uri: ObjectUri, version: str = NO_VERSION) -> None:
        """Delete an object, if it exists and, where a version is given, has it."""

    def server_time(self, uri: ObjectUri) -> datetime:
        """Return the time of the server, whose clock dates objects; this machine's clock may be wrong."""
