"""Some files of an artifact in object storage, in a bounded directory of this machine, keyed by their content.

A worker of a cluster compiles any few of a corpus' 20,000 modules; it fetches those, not the corpus, and keeps what
fits. DIRECTORY/<key>/ has the files under their names; <key> is a digest of names, sizes and checksums, so that a new
version of a corpus fetches only what is new. Processes share the directory: who uses an entry holds a lock on it, and
only what nobody uses is evicted, the longest unused first.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from components.console import UserError
from components.storage.manifest import ManifestEntry, manifest_digest
from components.storage.orphans import hold, remove_unused
from components.storage.remote import RemoteManifest, look
from components.storage.some import download_some
from components.storage.uri import GsUri, parse_place

_KEEP = 0.8
"""What is left of the limit by an eviction, so that not each new entry needs one."""
_LOOK = 0.05
"""Of the limit: after so much was fetched, what is there is measured again."""
_LONGEST_FETCH_S = 3600.0


class Portions:
    """The cache. limit_bytes: what its entries hold together, but for those in use."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._used = threading.local()
        directory.mkdir(parents=True, exist_ok=True)
        self._unseen_bytes = 0
        self._bytes = self._measured()

    def _measured(self) -> int:
        return sum(_size(entry) for entry in self._directory.iterdir())

    @property
    def held_bytes(self) -> int:
        """What the entries hold together, as far as this process knows."""
        return self._bytes

    @contextmanager
    def using(self) -> Iterator[None]:
        """What `files` returns to this thread stays while the block lasts."""
        self._used.locks = []
        try:
            yield
        finally:
            for descriptor in self._used.locks:
                os.close(descriptor)
            del self._used.locks

    def files(self, uri: str, content: str, names: Sequence[str]) -> Path:
        """A directory with these files of the artifact at `uri`; to be called within `using`.

        Args:
            content: the digest that the artifact must have.

        Raises:
            UserError: the artifact is gone or another one by now, a file is damaged, object storage does not answer.
        """
        remote, entries = _artifact(uri, content)
        wanted = [entries[name] for name in names]
        key = hashlib.sha256(json.dumps([entry.to_json() for entry in wanted]).encode()).hexdigest()[:32]
        place = self._directory / key
        while not self._hold(place):
            self._fetch(remote, wanted, place)
        return place

    def _hold(self, place: Path) -> bool:
        """Takes a lock on an entry that is there, and marks it as used now."""
        if (descriptor := hold(place)) is None:
            return False
        self._used.locks.append(descriptor)
        os.utime(place)
        return True

    def _fetch(self, remote: RemoteManifest, wanted: Sequence[ManifestEntry], place: Path) -> None:
        partial = self._directory / f".{place.name}-{secrets.token_hex(4)}"
        try:
            download_some(remote, wanted, partial)
            try:
                os.rename(partial, place)
            except OSError:
                return  # another thread or process was first
            with self._lock:
                fetched_bytes = sum(entry.size_bytes for entry in wanted)
                self._bytes += fetched_bytes
                self._unseen_bytes += fetched_bytes
                if self._unseen_bytes > self._limit_bytes * _LOOK:
                    # The node's other processes have fetched and evicted, too.
                    self._unseen_bytes, self._bytes = 0, self._measured()
                if self._bytes > self._limit_bytes:
                    self._bytes = self._evict()
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _evict(self) -> int:
        entries = sorted((path for path in self._directory.iterdir() if not _is_coming(path)), key=_last_used)
        sizes = {path: _size(path) for path in entries}
        total = sum(sizes.values())
        for path in entries:
            if total <= self._limit_bytes * _KEEP:
                break
            if remove_unused(path):
                total -= sizes[path]
        return total


@lru_cache(maxsize=4)
def _artifact(uri: str, content: str) -> tuple[RemoteManifest, dict[str, ManifestEntry]]:
    place = parse_place(uri)
    assert isinstance(place, GsUri)
    remote = look(place)
    if not remote.generation or manifest_digest(remote.files) != content:
        raise UserError(f"{uri} is not what it was when this began: it was replaced or removed", "begin anew")
    return remote, {entry.name: entry for entry in remote.files}


def _is_coming(path: Path) -> bool:
    """Whether it is being filled; what a process left that was killed over it is as old as the hills."""
    return path.name.startswith(".") and time.time() - _last_used(path) < _LONGEST_FETCH_S


def _size(directory: Path) -> int:
    """Of what is still there: other processes rename and evict meanwhile, which os.walk does not mind."""
    found = 0
    for folder, _folders, files in os.walk(directory):
        for name in files:
            with suppress(FileNotFoundError):
                found += os.lstat(os.path.join(folder, name)).st_size
    return found


def _last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
