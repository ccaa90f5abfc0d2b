"""Makes the pool that --workers describes."""

from __future__ import annotations

import re

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.processes.cgroup import available_processors
from components.platform.workers.local_pool import LocalPool
from components.platform.workers.pool import WorkerPool

HELP = (
    'Where compiles run: "local" (a worker per core), "local:N", "ray" (Ray on this machine) or "ray:HOST:PORT" (a Ray '
    'cluster, by its head\'s address; "ray:auto" for the cluster that this machine belongs to). Pipelines also take '
    '"rayjob" or "rayjob:N": the training starts a Ray cluster of up to N pods, other steps are "local".'
)
RAYJOB_WORKERS = 8
"""Default of the maximum number of pods of a RayJob."""

_LOCAL = re.compile(r"local(?::([1-9][0-9]*))?")
_RAYJOB = re.compile(r"rayjob(?::([1-9][0-9]{0,8}))?")
_RAY = re.compile(r"ray(?::(auto|[^\s:/]+:[0-9]{1,5}))?")


def check_workers(spec: str) -> None:
    """Raise UserError unless `spec` is one of the forms in HELP."""
    if not any(form.fullmatch(spec) for form in (_LOCAL, _RAY, _RAYJOB)):
        raise UserError(
            f"--workers {spec!r} is not known",
            'give "local", "local:N" with a number N of workers, "ray", "ray:auto", "ray:HOST:PORT" or "rayjob:N"',
        )


def rayjob_workers(spec: str) -> int | None:
    """Return the maximum number of pods of the RayJob that `spec` asks for; None if it does not ask for a RayJob."""
    match = _RAYJOB.fullmatch(spec)
    return int(match[1] or RAYJOB_WORKERS) if match else None


def make_pool(spec: str) -> WorkerPool:
    """Return the pool that `spec` describes.

    A pipeline passes the same value to all of its steps. The training step starts a RayJob without calling this
    function; the other steps compile each module once or twice, for which a cluster is not worth its start. Therefore
    "rayjob" means "local" here.

    Raises:
        UserError: as `check_workers`, or Ray is not installed or does not answer.
    """
    check_workers(spec)
    if rayjob_workers(spec):
        say(f"--workers {spec}: only the training step starts a RayJob; this step compiles on its own machine")
        spec = "local"
    if local := _LOCAL.fullmatch(spec):
        return LocalPool(int(local[1]) if local[1] else available_processors())
    from components.platform.workers.ray_pool import RayPool

    ray = _RAY.fullmatch(spec)
    assert ray is not None
    return RayPool(ray[1] or "")
