"""Where compiles run."""

from components.workers.local import LocalPool
from components.workers.make import make_pool
from components.workers.pool import WorkerPool

__all__ = ["LocalPool", "WorkerPool", "make_pool"]
