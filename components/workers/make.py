"""Makes the pool that a --workers flag describes."""

from __future__ import annotations

import os
import re

from components.console import UserError
from components.workers.local import LocalPool
from components.workers.pool import WorkerPool

HELP = (
    'Where compiles run: "local" (one for each core), "local:N", "ray" (Ray, started on this machine) or '
    '"ray:HOST:PORT" (a Ray cluster, by its head\'s address; "ray:auto" for the one that this machine is a node of).'
)

_LOCAL = re.compile(r"local(?::([1-9][0-9]*))?")
_RAY = re.compile(r"ray(?::(auto|[^\s:/]+:[0-9]{1,5}))?")


def check_workers(spec: str) -> None:
    """UserError unless `spec` is one of HELP's forms."""
    if not (_LOCAL.fullmatch(spec) or _RAY.fullmatch(spec)):
        raise UserError(
            f"--workers {spec!r} is not known",
            'give "local", "local:N" with a number N of workers, "ray", "ray:auto" or "ray:HOST:PORT"',
        )


def make_pool(spec: str) -> WorkerPool:
    """The pool that `spec` describes. UserError as `check_workers`, and where Ray is missing or does not answer."""
    check_workers(spec)
    if local := _LOCAL.fullmatch(spec):
        return LocalPool(int(local[1]) if local[1] else len(os.sched_getaffinity(0)))
    from components.workers.ray import RayPool

    ray = _RAY.fullmatch(spec)
    assert ray is not None
    return RayPool(ray[1] or "")
