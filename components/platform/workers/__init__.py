"""Worker pools: where compiles run."""

from components.platform.workers.factory import make_pool
from components.platform.workers.local_pool import LocalPool
from components.platform.workers.pool import WorkerPool

__all__ = ["LocalPool", "WorkerPool", "make_pool"]
