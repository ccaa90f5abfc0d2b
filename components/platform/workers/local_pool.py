"""Workers on this machine: threads, because the compilers that they wait for do the work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from components.platform.processes import supervision

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 2
"""Items in flight per worker: a running one and a ready one, so that no worker waits for the consumer."""
_KILL_INTERVAL_S = 0.02


class LocalPool:
    """A WorkerPool of `size` threads of this process; also a context manager that closes it."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"a pool of {size} workers")
        self.size = size
        self._threads: set[threading.Thread] = set()
        self._executor = ThreadPoolExecutor(
            size, "compile", initializer=lambda: self._threads.add(threading.current_thread())
        )

    def map_unordered(self, fn: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[int, R | Exception]]:
        """See WorkerPool. One iteration at a time: cancelling one kills the children of all threads of the pool."""
        indexed = enumerate(items)
        running: dict[Future[R], int] = {}
        try:
            while True:
                while len(running) < self.size * _AHEAD and (item := next(indexed, None)) is not None:
                    running[self._executor.submit(fn, item[1])] = item[0]
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    index = running.pop(future)
                    error = future.exception()
                    if error is not None and not isinstance(error, Exception):
                        raise error
                    yield index, error if error is not None else future.result()
        finally:
            self._cancel(list(running))

    def share(self, directory: Path, names: Sequence[str]) -> None:
        """See WorkerPool: threads see what this process sees."""

    def _cancel(self, futures: list[Future[R]]) -> None:
        pending = {future for future in futures if not future.cancel()}
        while pending:
            # Repeatedly, because a thread may be about to start a child.
            supervision.kill_running({thread.ident or 0 for thread in tuple(self._threads)})
            pending = wait(pending, timeout=_KILL_INTERVAL_S).not_done

    def close(self) -> None:
        """End the threads and kill their children. The iterator of a failed consumer is closed only later, with its
        traceback."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        while living := [thread for thread in tuple(self._threads) if thread.is_alive()]:
            supervision.kill_running({thread.ident or 0 for thread in living})
            living[0].join(timeout=_KILL_INTERVAL_S)
        self._executor.shutdown(wait=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
