"""Ends a step in time after SIGTERM, SIGHUP or Ctrl-C: Kubernetes kills it after 30 s.

A step in a pod of Kubeflow Pipelines has about a second, whatever it does: KFP's launcher, which started the step, gets
the signal, too, and does not handle it, and the container ends with the launcher.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from components.platform.console.interrupts import TERMINATING

LIMIT_S = 18.0


@contextmanager
def shutdown_deadline(limit_s: float = LIMIT_S) -> Iterator[None]:
    """End the process `limit_s` seconds after a signal that interrupts it if it still runs.

    The caller installs the signal handlers. Python runs them only between bytecode instructions, and they may wait for
    object storage that does not answer. Therefore a thread reads the signals as they arrive (signal.set_wakeup_fd). A
    forced end is like being killed: the reaper (platform/processes) ends the compiles, and the next run continues from
    the newest published state.
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
        # After a signal the thread remains, because the rest of the shutdown may hang, too.
        if not interrupted:
            signal.set_wakeup_fd(before)
            os.close(writing)


def _watch(reading: int, limit_s: float) -> None:
    with open(reading, "rb", buffering=0) as stream:
        while number := stream.read(1):
            if number[0] in (*TERMINATING, signal.SIGINT):
                break
        else:
            return
        # With the pipe still open: a waiting handler (platform/console/interrupts.py) gets more signals.
        time.sleep(limit_s)
    print(
        f"interrupted, and ended by force: the shutdown took more than {limit_s:.0f} s\n"
        "  remedy: run the same command again; it continues from the newest published state",
        file=sys.stderr,
        flush=True,
    )
    os._exit(128 + number[0])
