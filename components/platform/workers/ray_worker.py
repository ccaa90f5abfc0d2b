"""The actor on the nodes of a Ray cluster. It runs the function in threads, because compilers do the work.

An actor serves up to SLOTS slots of a node. With a process per slot, a large cluster would run 512 Python processes,
each with its own copy of data that a node needs once. A call costs both sides a millisecond, regardless of its size, so
a call has several items or results (docs/performance.md). Only Ray's worker processes and the pool import this file.
"""

from __future__ import annotations

import hashlib
import pickle
import socket
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray

from components.platform.console.number_types import environment_number
from components.platform.errors import UserError
from components.platform.processes import supervision
from components.platform.processes.reaper import REAPER
from components.platform.storage.cache import default_cache_dir
from components.platform.storage.manifest import digest
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.object_storage.object_store import STORAGE_PATIENCE_S, StorageError
from components.platform.storage.uri import ObjectUri, parse_location
from components.platform.workers import serialization
from components.platform.workers.settings import CACHE_GB, DEFAULT_CACHE_GB, REPLY_BYTES
from components.platform.workers.source_digest import source_digest

_KILL_INTERVAL_S = 0.02
_STORAGE_POLL_S = 5.0
"""How often an item asks object storage that does not answer."""
_LINGER_S = 1.0
"""How long a result waits at most to be sent with others, while items wait for a slot."""
_RESULTS_BYTES = REPLY_BYTES * 9 // 10
"""Size limit of several results in one answer, with room for what Ray adds."""
_MAX_SHARED = 8
"""Shared directories that are kept, if the present function needs fewer: those of the last iterations."""


def content_digest(files: Mapping[str, bytes]) -> str:
    """Return a digest of the content of a shared directory: name -> content."""
    lines = (f"{name} {hashlib.sha256(files[name]).hexdigest()}" for name in sorted(files))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class RayWorker:
    """Runs one function at a time, over many items. Functions of one trainer are numbered."""

    def __init__(self, slots: int) -> None:
        supervision.restore_sigchld()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(slots, "compile")
        self._preparing = threading.Lock()
        self._number = -1
        self._function: Callable[[Any], Any] | None = None
        self._cancelled = -1
        # Guards the number of items that wait for a thread, the running threads with the number of their function,
        # results that wait to be sent, and the number of exchanges so far.
        self._changed = threading.Condition()
        self._waiting = 0
        self._running: dict[int, int] = {}
        self._done: list[tuple[int, bytes]] = []
        self._exchanges = 0
        self._few = slots // 4
        self._shared: dict[str, Path] = {}
        self._artifacts: dict[str, Path] = {}
        self._fetching = threading.Lock()
        self._file_cache: Any = None
        self._storage_answered = False
        serialization.set_resolvers(self._shared.__getitem__, self._artifact, self._files)

    @ray.method(concurrency_group="control")
    def ping(self) -> tuple[str, str]:
        """Return host name and digest of this project's code."""
        return socket.gethostname(), source_digest()

    @ray.method(concurrency_group="control")
    def prepare(self, number: int, function: bytes, shared: Mapping[str, Any]) -> Exception | None:
        """Receive the function of the next items, unless a later one is present.

        Args:
            shared: digest -> reference to the content of shared directories.
        """
        try:
            # One at a time: a new node may still fetch what the previous function needs.
            with self._preparing:
                if number > self._number:
                    for content, reference in shared.items():
                        if content not in self._shared:
                            self._keep(content, ray.get(reference))
                    self._evict(shared)
                    self._function = pickle.loads(function)
                    self._number = number
        except Exception as error:
            return _picklable(error)
        return None

    def exchange(self, number: int, items: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Receive items with their keys; return keys and results of these or earlier items.

        A result is the pickle of (whether it succeeded, the result or the exception). The call returns when few items
        still wait for a slot, or some time after the first result; at once when a later exchange begins, or all work
        is done.
        """
        with self._changed:
            self._exchanges += 1
            mine = self._exchanges
            self._changed.notify_all()
            for key, item in items if number > self._cancelled else ():
                self._waiting += 1
                self._threads.submit(self._process, number, key, item)
            self._changed.wait_for(lambda: self._done or self._exchanges != mine or self._idle())
            self._changed.wait_for(lambda: self._has_enough() or self._exchanges != mine, _LINGER_S)
            return self._take_results()

    @ray.method(concurrency_group="control")
    def cancel(self, number: int) -> None:
        """Kill what runs for this function and earlier ones, and refuse later items for them.

        Items of the next function may run meanwhile: the caller's wait is limited, and a download cannot be killed.
        """
        with self._changed:
            self._cancelled = number
            self._done.clear()
            self._exchanges += 1
            self._changed.notify_all()
        # Repeatedly, because a thread may be about to start a child.
        while self._kill(number):
            time.sleep(_KILL_INTERVAL_S)

    @ray.method(concurrency_group="control")
    def shutdown(self) -> None:
        """Kill children and remove files before this process is killed: Ray's subreaper would kill the reaper, a child
        of this process, before it has cleaned up."""
        REAPER.close()

    def _kill(self, number: int) -> bool:
        """Kill the children of threads that run functions up to this one; return whether there were such threads.

        The lock prevents a thread from starting another item between the check and the kill.
        """
        with self._changed:
            threads = {thread for thread, runs in self._running.items() if runs <= number}
            supervision.kill_running(threads)
        return bool(threads)

    def _process(self, number: int, key: int, item: bytes) -> None:
        with self._changed:
            self._waiting -= 1
            if self._has_enough():
                self._changed.notify_all()
            if number <= self._cancelled:
                return
            self._running[threading.get_ident()] = number
        content = self._run(item)
        with self._changed:
            del self._running[threading.get_ident()]
            if number > self._cancelled:
                self._done.append((key, content))
            if len(self._done) == 1 or self._has_enough():
                self._changed.notify_all()

    def _has_enough(self) -> bool:
        return self._waiting <= self._few or sum(len(content) for _, content in self._done) >= _RESULTS_BYTES

    def _idle(self) -> bool:
        return not self._waiting and not self._running

    def _take_results(self) -> list[tuple[int, bytes]]:
        """Remove and return the results that fit into one answer, at least one."""
        count, size = 0, 0
        for _, content in self._done:
            size += len(content)
            if count and size > _RESULTS_BYTES:
                break
            count += 1
        taken, self._done = self._done[:count], self._done[count:]
        return taken

    def _run(self, item: bytes) -> bytes:
        assert self._function is not None
        try:
            with self._cache().using():
                result = self._function(pickle.loads(item))
            return pickle.dumps((True, result), pickle.HIGHEST_PROTOCOL)
        except BaseException as error:  # any failure is an answer: the trainer waits for the item
            return pickle.dumps((False, _picklable(error)))

    def _keep(self, content: str, files: Mapping[str, bytes]) -> None:
        directory = REAPER.scratch() / "shared" / content
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (directory / name).write_bytes(data)
        self._shared[content] = directory

    def _evict(self, needed: Container[str]) -> None:
        """Remove the oldest shared directories that are not needed, beyond _MAX_SHARED."""
        excess = max(0, len(self._shared) - _MAX_SHARED)
        for old in [content for content in self._shared if content not in needed][:excess]:
            for path in self._shared.pop(old).iterdir():
                path.unlink()

    def _artifact(self, uri: str, content: str) -> Path:
        with self._fetching:
            if uri not in self._artifacts:
                location = parse_location(uri)
                assert isinstance(location, ObjectUri)
                self._artifacts[uri] = fetch(location)
                self._storage_answered = True
            if digest(self._artifacts[uri]) != content:
                raise UserError(f"{uri} was replaced since the training began", "start the training again")
            return self._artifacts[uri]

    def _files(self, uri: str, content: str, names: tuple[str, ...]) -> Path:
        began_s = time.monotonic()
        while True:
            try:
                directory = Path(self._cache().files(uri, content, names))
                self._storage_answered = True
                return directory
            except StorageError:
                # Storage that never answered may refuse for ever, credentials that are missing for example.
                if not self._storage_answered or time.monotonic() - began_s > STORAGE_PATIENCE_S:
                    raise
            if self._is_cancelled_within(_STORAGE_POLL_S):
                raise UserError(f"{uri}: cancelled while object storage does not answer")

    def _is_cancelled_within(self, seconds: float) -> bool:
        """Wait; return at once when the function that this thread runs is cancelled."""
        with self._changed:
            number = self._running.get(threading.get_ident())
            return self._changed.wait_for(lambda: number is not None and number <= self._cancelled, seconds)

    def _cache(self) -> Any:
        with self._lock:
            if self._file_cache is None:
                from components.platform.storage.object_storage.file_cache import FileCache

                limit_bytes = int(environment_number(CACHE_GB, DEFAULT_CACHE_GB) * 1e9)
                self._file_cache = FileCache(default_cache_dir() / "modules", limit_bytes)
            return self._file_cache


def _picklable(error: BaseException) -> Exception:
    """Return the exception in a form that can be pickled; UserErrors name the worker that they are about."""
    if isinstance(error, UserError):
        kind = StorageError if isinstance(error, StorageError) else UserError
        return kind(f"on the worker {socket.gethostname()}: {error.problem}", error.remedy)
    try:
        pickle.loads(pickle.dumps(error))
        if isinstance(error, Exception):
            return error
    except Exception:
        pass
    return RuntimeError(f"on the worker {socket.gethostname()}: {type(error).__name__}: {error}")
