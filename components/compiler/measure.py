"""The yardstick of every overhead that is claimed: the plain compile of the same modules by the same means."""

from __future__ import annotations

import time
from collections.abc import Sequence

from components.compiler.advisor import Advisor
from components.compiler.compile import Compiler, Request
from components.compiler.quarantine import Quarantine, compile_all
from components.formats.corpus import Module
from components.workers.pool import WorkerPool


def plain_compile_all(pool: WorkerPool, compiler: Compiler, modules: Sequence[Module]) -> float:
    """Seconds of wall time to compile `modules`, in this order, with LLVM's own heuristic and nothing logged.

    The same processes, scratch files and reading of objects as for any other request, so that a ratio to it is about
    what was added alone. UserError if a module does not compile: a yardstick with gaps measures nothing.
    """
    requests = [Request(module, Advisor("default")) for module in modules]
    started_s = time.perf_counter()
    for _ in compile_all(pool, compiler, requests, Quarantine(max_failed_fraction=0.0)):
        pass
    return time.perf_counter() - started_s
