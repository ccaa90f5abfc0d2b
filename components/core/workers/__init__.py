"""Worker pools: where compiles run."""

from components.core.workers.factory import make_pool
from components.core.workers.local_pool import LocalPool
from components.core.workers.pool import WorkerPool

__all__ = ["LocalPool", "WorkerPool", "make_pool"]
