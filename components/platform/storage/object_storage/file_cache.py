"""Bounded local cache for single files of artifacts in object storage, keyed by content.

A worker of a cluster compiles a few of a corpus's 20,000 modules; it fetches those, not the corpus, and keeps what
fits. DIRECTORY/<key>/ holds the files under their names; <key> is a digest of names, sizes and checksums, so that a new
version of a corpus fetches only new content. Processes share the directory: a user of an entry holds a lock on it, and
only unlocked entries are evicted, least recently used first.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import google_crc32c

from components.platform.errors import UserError
from components.platform.storage.directory import last_used, make_directory, size_of
from components.platform.storage.manifest import ManifestEntry, manifest_digest
from components.platform.storage.object_storage.confined_files import create_file_below
from components.platform.storage.object_storage.object_store import ObjectMissing
from components.platform.storage.object_storage.packs import Pack
from components.platform.storage.object_storage.remote import RemoteManifest, read_remote_manifest
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.shared_state.stale_directories import evict, lock_shared
from components.platform.storage.uri import ObjectUri, parse_location

GAP_BYTES = 64 << 10
"""Files of a pack at most this far apart are read in one request: a request costs more than transferring the gap."""
_KEEP_FRACTION = 0.8
"""Fraction of the limit that an eviction leaves, so that not every new entry needs an eviction."""
_REMEASURE_FRACTION = 0.05
"""The directory is measured again after fetching this fraction of the limit."""
_LONGEST_FETCH_S = 3600.0


class _Damaged(UserError):
    """A file differs from the manifest."""


class FileCache:
    """The cache.

    Args:
        limit_bytes: total size of the entries, not counting those in use.
    """

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._used = threading.local()
        directory.mkdir(parents=True, exist_ok=True)
        self._unseen_bytes = 0
        self._bytes = self._measure()

    def _measure(self) -> int:
        return sum(size_of(entry) for entry in self._directory.iterdir())

    @contextmanager
    def using(self) -> Iterator[None]:
        """Keep the directories that `files` returns to this thread until the block ends."""
        self._used.locks = []
        try:
            yield
        finally:
            for descriptor in self._used.locks:
                os.close(descriptor)
            del self._used.locks

    def files(self, uri: str, content: str, names: Sequence[str]) -> Path:
        """Return a directory with these files of the artifact at `uri`. Call it within `using`.

        Args:
            content: the digest that the artifact must have.

        Raises:
            UserError: the artifact was removed or replaced, a file is damaged, or object storage does not answer.
        """
        try:
            return self._held_files(uri, content, names)
        except (ObjectMissing, _Damaged):
            _artifact.cache_clear()  # the same content may have been published again, in another folder
            return self._held_files(uri, content, names)

    def _held_files(self, uri: str, content: str, names: Sequence[str]) -> Path:
        remote, entries = _artifact(uri, content)
        requested = [entries[name] for name in names]
        key = hashlib.sha256(json.dumps([entry.to_json() for entry in requested]).encode()).hexdigest()[:32]
        cached = self._directory / key
        while not self._hold(cached):
            self._fetch(remote, requested, cached)
        return cached

    def _hold(self, cached: Path) -> bool:
        """Lock an existing entry and mark it as used now; return False if there is none."""
        if (descriptor := lock_shared(cached)) is None:
            return False
        self._used.locks.append(descriptor)
        os.utime(cached)
        return True

    def _fetch(self, remote: RemoteManifest, requested: Sequence[ManifestEntry], cached: Path) -> None:
        partial = self._directory / f".{cached.name}-{secrets.token_hex(4)}"
        try:
            download_files(remote, requested, partial)
            try:
                os.rename(partial, cached)
            except OSError:
                return  # another thread or process was first
            with self._lock:
                fetched_bytes = sum(entry.size_bytes for entry in requested)
                self._bytes += fetched_bytes
                self._unseen_bytes += fetched_bytes
                if self._unseen_bytes > self._limit_bytes * _REMEASURE_FRACTION:
                    # Other processes of this node fetch and evict too.
                    self._unseen_bytes, self._bytes = 0, self._measure()
                if self._bytes > self._limit_bytes:
                    # Entries that are being filled stay; those left by a killed process are older than an hour.
                    oldest_s = time.time() - _LONGEST_FETCH_S
                    paths = self._directory.iterdir()
                    entries = [p for p in paths if not p.name.startswith(".") or last_used(p) <= oldest_s]
                    self._bytes = evict(entries, self._limit_bytes * _KEEP_FRACTION)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@lru_cache(maxsize=4)
def _artifact(uri: str, content: str) -> tuple[RemoteManifest, dict[str, ManifestEntry]]:
    location = parse_location(uri)
    assert isinstance(location, ObjectUri)
    remote = read_remote_manifest(location)
    if not remote.version or manifest_digest(remote.files) != content:
        raise UserError(f"{uri} was replaced or removed since this run started", "start again")
    return remote, {entry.name: entry for entry in remote.files}


def download_files(remote: RemoteManifest, entries: Sequence[ManifestEntry], into: Path) -> None:
    """Write these regular files of the artifact below `into`, which need not exist.

    Raises:
        UserError: files are missing or differ from the manifest; object storage refuses or does not answer.
    """
    make_directory(into)
    content: dict[str, bytes] = {}
    for pack in remote.packs:
        inside = [entry for entry in entries if entry.name in pack.offsets]
        for group in _group_by_distance(inside, pack):
            content |= _read_range(remote, group, pack)
    for entry in entries:
        if entry.name not in content:
            content[entry.name] = store_of(remote.uri).read_range(remote.uri / remote.data / entry.name)
        _check(remote, entry, content[entry.name])
        with create_file_below(into, entry.name) as stream:
            stream.write(content[entry.name])


def _group_by_distance(entries: Sequence[ManifestEntry], pack: Pack) -> list[list[ManifestEntry]]:
    groups: list[list[ManifestEntry]] = []
    end = 0
    for entry in sorted(entries, key=lambda entry: pack.offsets[entry.name]):
        if not groups or pack.offsets[entry.name] - end > GAP_BYTES:
            groups.append([])
        groups[-1].append(entry)
        end = pack.offsets[entry.name] + entry.size_bytes
    return groups


def _read_range(remote: RemoteManifest, entries: Sequence[ManifestEntry], pack: Pack) -> dict[str, bytes]:
    start = pack.offsets[entries[0].name]
    end = pack.offsets[entries[-1].name] + entries[-1].size_bytes
    data = b""
    if end > start:
        data = store_of(remote.uri).read_range(remote.uri / remote.data / pack.name, start, end)
    begins = ((entry, pack.offsets[entry.name] - start) for entry in entries)
    return {entry.name: data[begin : begin + entry.size_bytes] for entry, begin in begins}


def _check(remote: RemoteManifest, entry: ManifestEntry, data: bytes) -> None:
    crc32c = base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
    sha256 = hashlib.sha256(data).hexdigest() if entry.sha256 else ""
    if (len(data), crc32c, sha256) != (entry.size_bytes, entry.crc32c, entry.sha256):
        raise _Damaged(f"{remote.uri} is damaged: the content of {entry.name} differs", "make it again")
