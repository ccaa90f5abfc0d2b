"""Makes the pool that a --workers flag describes."""

from __future__ import annotations

import os
import re

from components.core.console import UserError, say
from components.core.workers.local_pool import LocalPool
from components.core.workers.pool import WorkerPool

HELP = (
    'Where compiles run: "local" (one for each core), "local:N", "ray" (Ray, started on this machine) or '
    '"ray:HOST:PORT" (a Ray cluster, by its head\'s address; "ray:auto" for the one that this machine is a node of). '
    'Of a pipeline also "rayjob" or "rayjob:N": PPO starts a Ray cluster of up to N pods, other steps are "local".'
)
RAYJOB_WORKERS = 8
"""Pods of a RayJob, at most, where no number is given."""

_LOCAL = re.compile(r"local(?::([1-9][0-9]*))?")
_RAYJOB = re.compile(r"rayjob(?::([1-9][0-9]{0,8}))?")
_RAY = re.compile(r"ray(?::(auto|[^\s:/]+:[0-9]{1,5}))?")


def check_workers(spec: str) -> None:
    """UserError unless `spec` is one of HELP's forms."""
    if not any(form.fullmatch(spec) for form in (_LOCAL, _RAY, _RAYJOB)):
        raise UserError(
            f"--workers {spec!r} is not known",
            'give "local", "local:N" with a number N of workers, "ray", "ray:auto", "ray:HOST:PORT" or "rayjob:N"',
        )


def rayjob_workers(spec: str) -> int | None:
    """How many pods the RayJob may have that `spec` asks for; None if it asks for none."""
    found = _RAYJOB.fullmatch(spec)
    return int(found[1] or RAYJOB_WORKERS) if found else None


def make_pool(spec: str) -> WorkerPool:
    """The pool that `spec` describes. UserError as `check_workers`, and where Ray is missing or does not answer.

    A pipeline tells all of its steps the same. The one that trains for hours starts a RayJob before it comes here, and
    for what the others compile, each module once or twice, a cluster is not worth its start: "rayjob" is "local" here.
    """
    check_workers(spec)
    if rayjob_workers(spec):
        say(f"--workers {spec}: a RayJob is for training; this step compiles on its own machine")
        spec = "local"
    if local := _LOCAL.fullmatch(spec):
        return LocalPool(int(local[1]) if local[1] else len(os.sched_getaffinity(0)))
    from components.core.workers.ray_pool import RayPool

    ray = _RAY.fullmatch(spec)
    assert ray is not None
    return RayPool(ray[1] or "")
