"""An end in time: who stops a training with SIGTERM or Ctrl-C kills it if it takes too long (Kubernetes after 30 s)."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LIMIT_S = 18.0


@contextmanager
def shutdown_deadline(limit_s: float = LIMIT_S) -> Iterator[None]:
    """Ends the process `limit_s` seconds after SIGTERM or SIGINT, if it has not ended by itself by then.

    The signal's handlers are the caller's. Python runs them between two of its instructions only, and what they begin
    may wait for an object storage that does not answer, and for threads that do. So a thread reads here what the
    signals write (signal.set_wakeup_fd) the moment that they come. Ending in haste is as being killed: the guard of
    core/compiler ends the compiles, and the newest published checkpoint is what the next training goes on from.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading, limit_s), name="end", daemon=True).start()
    interrupted = True
    try:
        yield
        interrupted = False
    except Exception:
        interrupted = False
        raise
    finally:
        # After a signal the thread stays: the end of the process may take its time, too.
        if not interrupted:
            signal.set_wakeup_fd(before)
            os.close(writing)


def _watch(reading: int, limit_s: float) -> None:
    with open(reading, "rb", buffering=0) as stream:
        while number := stream.read(1):
            if number[0] in (signal.SIGTERM, signal.SIGINT):
                break
        else:
            return
    time.sleep(limit_s)
    print(
        f"interrupted, and ended in haste: something did not answer for {limit_s:.0f} s\n"
        "  remedy: run the same command again: it goes on after the newest checkpoint that was published",
        file=sys.stderr,
        flush=True,
    )
    os._exit(128 + number[0])
