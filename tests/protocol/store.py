"""Object storage in memory, with answers that are lost and writes that are late, as an ObjectStore."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

import google_crc32c

from components.platform.storage.object_storage.object_store import (
    NO_VERSION,
    ObjectMissing,
    StorageError,
    StoredObject,
    VersionConflict,
)
from components.platform.storage.uri import ObjectUri
from tests.protocol.scheduler import Killed, World

T = TypeVar("T")
FAULTS = ("refused", "answer is lost", "answer is lost and the request repeated", "late", "conflict", "late conflict")
"""Of writes; reads are refused only."""
LATE_S = (1.0, 300.0)
"""When what a client has given up is executed nevertheless: below a minute more often than not."""


class SimulatedStore:
    """Buckets that all actors of a world share.

    Args:
        rate: share of requests with a fault.
        by_content: whether versions are digests of the content, as in S3; else numbers, as in Cloud Storage.
    """

    def __init__(self, world: World, rate: float, by_content: bool) -> None:
        self._world, self._rate, self._by_content = world, rate, by_content
        self._objects: dict[str, tuple[bytes, str, datetime]] = {}
        self._writes = 0
        self.commits: list[tuple[str, bytes]] = []
        """Path and content of each conditional write that was executed."""
        self.uploads: list[tuple[str, bytes]] = []
        """The same of files."""

    def faultless(self) -> None:
        self._rate = 0.0

    def content(self, uri: ObjectUri) -> bytes | None:
        """Return the content of an object, for checks."""
        entry = self._objects.get(uri.path)
        return None if entry is None else entry[0]

    def read(self, uri: ObjectUri) -> tuple[bytes | None, str]:
        return self._ask(lambda: self._objects.get(uri.path, (None, NO_VERSION))[:2])

    def read_range(self, uri: ObjectUri, start: int = 0, end: int | None = None) -> bytes:
        return self._ask(lambda: self._get(uri))[start:end]

    def head(self, uri: ObjectUri) -> StoredObject | None:
        return self._ask(lambda: self._describe(uri.path) if uri.path in self._objects else None)

    def objects(self, folder: ObjectUri) -> list[StoredObject]:
        prefix = f"{folder.path}/" if folder.path else ""
        return self._ask(lambda: [self._describe(path) for path in sorted(self._objects) if path.startswith(prefix)])

    def write(self, uri: ObjectUri, content: bytes, version: str) -> StoredObject:
        def execute() -> StoredObject:
            if self._objects.get(uri.path, (b"", NO_VERSION))[1] != version:
                raise VersionConflict(uri)
            self.commits.append((uri.path, content))
            return self._put(uri.path, content)

        def execute_late() -> None:
            if self._objects.get(uri.path, (b"", NO_VERSION))[1] == version:
                execute()

        fault = self._draw()
        self._world.pause()
        if fault == "refused":
            raise StorageError(f"{uri}: refused", "")
        if fault in ("late", "late conflict"):
            low, high = LATE_S
            self._world.later(low * (high / low) ** self._world.random.random(), execute_late)
        if fault == "late":
            raise StorageError(f"{uri}: no answer", "")
        if fault in ("conflict", "late conflict"):
            raise VersionConflict(uri)
        stored = execute()
        self._world.pause()
        if fault == "answer is lost":
            raise StorageError(f"{uri}: no answer", "")
        if fault:
            execute()
        return stored

    def require_writable(self, uri: ObjectUri) -> None:
        pass

    def upload(self, files: Sequence[tuple[Path, ObjectUri]]) -> list[datetime]:
        def upload(path: Path, uri: ObjectUri) -> StoredObject:
            self.uploads.append((uri.path, path.read_bytes()))
            return self._put(uri.path, path.read_bytes())

        stored = [self._ask(partial(upload, path, uri)) for path, uri in files]
        return [one.updated for one in stored if one.updated]

    def download(self, objects: Sequence[tuple[ObjectUri, Callable[[], BinaryIO]]]) -> None:
        for uri, create in objects:
            content = self._ask(partial(self._get, uri))
            with create() as stream:
                stream.write(content)

    def download_to(self, uri: ObjectUri, path: Path, version: str = NO_VERSION) -> None:
        path.write_bytes(self._ask(lambda: self._get(uri, version)))

    def delete(self, uri: ObjectUri, version: str = NO_VERSION) -> None:
        def execute() -> None:
            if version in (NO_VERSION, self._objects.get(uri.path, (b"", NO_VERSION))[1]):
                self._objects.pop(uri.path, None)

        self._ask(execute)

    def server_time(self, uri: ObjectUri) -> datetime:
        return self._ask(self._now)

    def _ask(self, execute: Callable[[], T]) -> T:
        """Execute a request that can be repeated; others run before it is executed, and before its answer comes."""
        fault = self._draw()
        self._world.pause()
        if fault:
            raise StorageError("the store does not answer", "")
        answer = execute()
        self._world.pause()
        return answer

    def _draw(self) -> str:
        if self._world.machine.dead:
            raise Killed
        return self._world.random.choice(FAULTS) if self._world.random.random() < self._rate else ""

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._world.now_s, UTC)

    def _get(self, uri: ObjectUri, version: str = NO_VERSION) -> bytes:
        content, present, _updated = self._objects.get(uri.path, (b"", NO_VERSION, None))
        if present == NO_VERSION or version not in (NO_VERSION, present):
            raise ObjectMissing(uri)
        return content

    def _put(self, path: str, content: bytes) -> StoredObject:
        self._writes += 1
        version = hashlib.md5(content).hexdigest() if self._by_content else str(self._writes)
        self._objects[path] = (content, version, self._now())
        return self._describe(path)

    def _describe(self, path: str) -> StoredObject:
        content, version, updated = self._objects[path]
        crc32c = base64.b64encode(google_crc32c.Checksum(content).digest()).decode()
        return StoredObject(path, len(content), version, "" if self._by_content else crc32c, updated)
