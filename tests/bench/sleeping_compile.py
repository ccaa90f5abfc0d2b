"""Compiles that only sleep, for a simulated cluster. Its workers import this and little else."""

from __future__ import annotations

import dataclasses
import pickle
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from components.core.compiler.compile import Request
from components.platform.workers import WorkerPool
from components.ppo.credit.measured_flips import FlipJob, FlipResult

COPY = "~"
"""Separates the number of a copy from the name of a module that is simulated more than once."""


def original(name: str) -> str:
    """Return the name of the module that this one is a copy of."""
    return name.partition(COPY)[0]


@dataclass(frozen=True)
class SleepingCompile:
    """Sleeping replacement of MeasureModule, or of a function that compiles a module once.

    Attributes:
        compile_module: the replaced function; serialized as well, because an iteration sends it.
        flip_compiles: number of compiles with flips of each module.
        compile_s: seconds of one compile, by module name.
        results: directory with a pickled FlipResult of each whole module.
        numbers: file in `results` by module name.
    """

    compile_module: Callable[[Any], Any]
    flip_compiles: int
    compile_s: Mapping[str, float]
    results: Path
    numbers: Mapping[str, int]

    def seconds(self, request: Request) -> float:
        """Return how long the compiles of a request take."""
        flips = request.flip_compiles(self.flip_compiles) if isinstance(request, FlipJob) else 0
        return self.compile_s[original(request.module.name)] * (1 + flips)

    def __call__(self, request: Request) -> Any:
        awake_s = time.monotonic() + self.seconds(request)
        name = request.module.name
        if isinstance(request, FlipJob):
            result: Any = Pickled(self._file_of(request).read_bytes(), name)
        else:
            result = name, {"": 1000}
        time.sleep(max(0.0, awake_s - time.monotonic()))  # building the result is part of the simulated time
        return result

    def _file_of(self, job: FlipJob) -> Path:
        """Return the file with the result of a job, created for its first request."""
        whole = self.results / str(self.numbers[original(job.module.name)])
        if job.parts == 1:
            return whole
        part = whole.with_name(f"{whole.name}-{job.part}-{job.parts}")
        if not part.exists():
            result: FlipResult = pickle.loads(whole.read_bytes())
            rows = np.flatnonzero(result.savings.flip_set % job.parts == job.part)
            result = dataclasses.replace(
                result,
                part=job.part,
                savings=result.savings.take(rows),
                rows=result.rows.take(rows),
                compiles=1 + job.flip_compiles(result.compiles - 1),
            )
            partial = part.with_name(f"{part.name}.{secrets.token_hex(4)}")
            partial.write_bytes(pickle.dumps(result, pickle.HIGHEST_PROTOCOL))
            partial.rename(part)
        return part


class Pickled:
    """A FlipResult that is already pickled; it is unpickled as a FlipResult of the requested module."""

    def __init__(self, content: bytes, name: str) -> None:
        self._content = content
        self._name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self._content, self._name)


def _named(content: bytes, name: str) -> FlipResult:
    return dataclasses.replace(pickle.loads(content), module_name=name)


class SleepingPool:
    """A WorkerPool whose workers sleep instead of compiling.

    Attributes:
        slept_s: seconds slept for finished requests.
        again_s: the part of slept_s for base compiles that another part of the same module repeats.
    """

    def __init__(self, pool: WorkerPool, sleeping: SleepingCompile) -> None:
        self._pool = pool
        self._compile = sleeping
        self.slept_s = self.again_s = 0.0

    @property
    def size(self) -> int:
        return self._pool.size

    def map_unordered(self, fn: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        requests = list(items)
        sleeping = dataclasses.replace(self._compile, compile_module=fn)
        for index, outcome in self._pool.map_unordered(sleeping, requests):
            request = requests[index]
            self.slept_s += sleeping.seconds(request)
            if isinstance(request, FlipJob) and request.part:
                self.again_s += sleeping.compile_s[original(request.module.name)]
            yield index, outcome

    def share(self, directory: Path, names: Sequence[str]) -> None:
        self._pool.share(directory, names)

    def close(self) -> None:
        self._pool.close()
