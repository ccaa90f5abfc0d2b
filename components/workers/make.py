"""Makes the pool that a --workers flag describes."""

from __future__ import annotations

import os

from components.console import UserError
from components.workers.local import LocalPool
from components.workers.pool import WorkerPool

HELP = 'Where compiles run: "local" (one for each core) or "local:N".'


def number_of_workers(spec: str) -> int:
    """How many workers `spec` asks for: "local" or "local:N". UserError for anything else."""
    kind, _, count = spec.partition(":")
    if kind != "local" or (count and not (count.isdecimal() and int(count) > 0)) or spec.endswith(":"):
        raise UserError(f"--workers {spec!r} is not known", 'give "local" or "local:N" with a number N of workers')
    return int(count) if count else len(os.sched_getaffinity(0))


def make_pool(spec: str) -> WorkerPool:
    """The pool that `spec` describes. UserError as `number_of_workers`."""
    return LocalPool(number_of_workers(spec))
