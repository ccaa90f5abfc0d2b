"""The worker's side of Ray: an actor that runs the function in threads, for all the work is in the compilers.

One agent has up to SLOTS slots of a node: a process for each slot would have 512 Pythons on a large cluster, and each
its own copy of what a node needs once. A call of Ray's costs both sides a millisecond, whatever it carries, so items
come and results go several at a time (docs/scale.md). Only Ray's workers and the pool import this.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray

from components.core.console import UserError
from components.core.console.number_types import environment_number
from components.core.processes import supervision
from components.core.processes.reaper import REAPER
from components.core.storage.cache import default_cache_dir
from components.core.storage.fetch import fetch
from components.core.storage.manifest import digest
from components.core.storage.uri import GsUri, parse_place
from components.core.workers import serialization
from components.core.workers.settings import CACHE_GB, DEFAULT_CACHE_GB, REPLY_BYTES

_KILL_INTERVAL_S = 0.02
_LINGER_S = 1.0
"""How long a result waits for others to go with, at most, while there are items that wait for a slot."""
_RESULTS_BYTES = REPLY_BYTES * 9 // 10
"""Of several results at once, with room for what Ray adds."""
_SHARED_KEPT = 8
"""Shared directories that are kept: those of this iteration, of the one before, and of its validation."""

Shared = Mapping[str, Mapping[str, bytes]]


def content_digest(files: Mapping[str, bytes]) -> str:
    """Identifies the content of a shared directory: name -> content."""
    lines = (f"{name} {hashlib.sha256(files[name]).hexdigest()}" for name in sorted(files))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


class RayWorker:
    """Runs one function at a time, over many items. `number` counts the functions of one trainer."""

    def __init__(self, slots: int) -> None:
        supervision.restore_sigchld()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(slots, "compile")
        self._preparing = threading.Lock()
        self._number = -1
        self._function: Callable[[Any], Any] | None = None
        self._ended = -1
        # Guards what follows: items that wait for a thread, threads that run one with the number of its function,
        # results that wait for an exchange to take them along, and how many exchanges there were.
        self._changed = threading.Condition()
        self._waiting = 0
        self._running: dict[int, int] = {}
        self._done: list[tuple[int, bytes]] = []
        self._exchanges = 0
        self._few = slots // 4
        self._shared: dict[str, Path] = {}
        self._artifacts: dict[str, Path] = {}
        self._fetching = threading.Lock()
        self._portions: Any = None
        serialization.arrive(self._shared.__getitem__, self._artifact, self._files)

    @ray.method(concurrency_group="control")
    def ping(self) -> tuple[str, int]:
        """Host and process number."""
        return socket.gethostname(), os.getpid()

    @ray.method(concurrency_group="control")
    def prepare(self, number: int, function: bytes, shared: Mapping[str, Any]) -> Exception | None:
        """Takes a function that items come for soon, unless it has a later one. shared: digest -> reference to the
        content."""
        try:
            # One at a time: a node that comes late may still fetch what the function before needs.
            with self._preparing:
                if number > self._number:
                    for content, reference in shared.items():
                        if content not in self._shared:
                            self._keep(content, ray.get(reference))
                    self._function = pickle.loads(function)
                    self._number = number
        except Exception as error:
            return _portable(error)
        return None

    def exchange(self, number: int, items: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Takes items, and waits for results: of these items or of earlier ones, with the numbers that came with them.

        A result is pickled: whether it succeeded, and the result or the exception. They are returned when few items are
        left that wait for a slot, or some time after the first. A later exchange has this one return at once, with what
        there is; so does an end of all work.
        """
        with self._changed:
            self._exchanges += 1
            mine = self._exchanges
            self._changed.notify_all()
            for key, item in items if number > self._ended else ():
                self._waiting += 1
                self._threads.submit(self._one, number, key, item)
            self._changed.wait_for(lambda: self._done or self._exchanges != mine or self._idle())
            self._changed.wait_for(lambda: self._enough() or self._exchanges != mine, _LINGER_S)
            return self._taken()

    @ray.method(concurrency_group="control")
    def give_up(self, number: int) -> None:
        """Kills what runs for this function and those before it, and refuses what comes for them later.

        The next function's items may run by then: who asks does not wait for ever, and a download cannot be killed.
        """
        with self._changed:
            self._ended = number
            self._done.clear()
            self._exchanges += 1
            self._changed.notify_all()
        # Again and again: a thread may just be starting a child.
        while self._killed(number):
            time.sleep(_KILL_INTERVAL_S)

    @ray.method(concurrency_group="control")
    def end(self) -> None:
        """Kills what runs and removes what was written, before this process is killed: its guard is a child of it, and
        Ray's subreaper kills those before they have cleaned up."""
        REAPER.close()

    def _killed(self, number: int) -> bool:
        """Kills the children of what runs for functions up to this one; whether there was any. Under the lock, so that
        no thread goes over to another item between the look and the kill."""
        with self._changed:
            threads = {thread for thread, runs in self._running.items() if runs <= number}
            supervision.kill_running(threads)
        return bool(threads)

    def _one(self, number: int, key: int, item: bytes) -> None:
        with self._changed:
            self._waiting -= 1
            if self._enough():
                self._changed.notify_all()
            if number <= self._ended:
                return
            self._running[threading.get_ident()] = number
        content = self._run(item)
        with self._changed:
            del self._running[threading.get_ident()]
            if number > self._ended:
                self._done.append((key, content))
            if len(self._done) == 1 or self._enough():
                self._changed.notify_all()

    def _enough(self) -> bool:
        return self._waiting <= self._few or sum(len(content) for _, content in self._done) >= _RESULTS_BYTES

    def _idle(self) -> bool:
        return not self._waiting and not self._running

    def _taken(self) -> list[tuple[int, bytes]]:
        """Takes results, as many as one reply has room for, and one however large."""
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
        except BaseException as error:  # whatever it is, the item must not be waited for
            return pickle.dumps((False, _portable(error)))

    def _keep(self, content: str, files: Mapping[str, bytes]) -> None:
        directory = REAPER.scratch() / "shared" / content
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (directory / name).write_bytes(data)
        for old in list(self._shared)[: -_SHARED_KEPT + 1]:
            for path in self._shared.pop(old).iterdir():
                path.unlink()
        self._shared[content] = directory

    def _artifact(self, uri: str, content: str) -> Path:
        with self._fetching:
            if uri not in self._artifacts:
                place = parse_place(uri)
                assert isinstance(place, GsUri)
                self._artifacts[uri] = fetch(place)
            if digest(self._artifacts[uri]) != content:
                raise UserError(f"{uri} is not what it was when the training began: it was replaced", "begin anew")
            return self._artifacts[uri]

    def _files(self, uri: str, content: str, names: tuple[str, ...]) -> Path:
        return Path(self._cache().files(uri, content, names))

    def _cache(self) -> Any:
        with self._lock:
            if self._portions is None:
                from components.core.storage.file_cache import FileCache

                limit_bytes = int(environment_number(CACHE_GB, DEFAULT_CACHE_GB) * 1e9)
                self._portions = FileCache(default_cache_dir() / "modules", limit_bytes)
            return self._portions


def _portable(error: BaseException) -> Exception:
    """The exception as it can travel; what the user must mend on a worker says on which."""
    if isinstance(error, UserError):
        return UserError(f"on the worker {socket.gethostname()}: {error.problem}", error.remedy)
    try:
        pickle.loads(pickle.dumps(error))
        if isinstance(error, Exception):
            return error
    except Exception:
        pass
    return RuntimeError(f"on the worker {socket.gethostname()}: {type(error).__name__}: {error}")
