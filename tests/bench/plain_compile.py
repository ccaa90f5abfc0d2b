"""Measures plain compiles, the reference of all overhead figures: the same modules, compiled in the same way."""

from __future__ import annotations

import time
from collections.abc import Sequence

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.quarantine import Quarantine, compile_all
from components.core.formats.corpus import Module
from components.platform.workers.pool import WorkerPool


def time_plain_compiles(pool: WorkerPool, compiler: Compiler, modules: Sequence[Module]) -> float:
    """Return the wall time in seconds to compile `modules`, in this order, with LLVM's heuristic and without logs.

    Processes, scratch files and the reading of objects are the same as for any other request, so that a ratio to this
    time shows only the added work.

    Raises:
        UserError: a module does not compile, so the time would not be comparable.
    """
    requests = [Request(module, Advisor("default")) for module in modules]
    started_s = time.perf_counter()
    for _ in compile_all(pool, compiler, requests, Quarantine(max_failed_fraction=0.0)):
        pass
    return time.perf_counter() - started_s
