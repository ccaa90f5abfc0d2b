"""A Ray cluster of several nodes on this machine: each is a raylet with its own cache."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.platform.processes import supervision
from components.platform.workers.ray_pool import RayPool
from components.platform.workers.settings import NODE_SETTINGS

SLOTS = 2


class Nodes:
    """A head that compiles nothing, and nodes that come and go."""

    def __init__(self, directory: Path) -> None:
        from ray.cluster_utils import Cluster

        self._directory = directory
        self._cluster = Cluster()
        self._head = self._cluster.add_node(num_cpus=0, include_dashboard=False, object_store_memory=100 << 20)
        self.added: list[Any] = []

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self) -> Any:
        """Another node with SLOTS slots, and a cache directory of its own."""
        cache = self._directory / f"node-{len(self.added)}"
        node = self._cluster.add_node(
            num_cpus=SLOTS, object_store_memory=100 << 20, env_vars={"MLGO_CACHE_DIR": str(cache)}
        )
        self.added.append(node)
        return node

    def cache(self, number: int) -> Path:
        return self._directory / f"node-{number}"

    def workers(self) -> list[int]:
        """Process IDs of the actors that compile."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                is_worker = (process / "cmdline").read_bytes().startswith(b"ray::RayWorker")
                if is_worker and f"{self._directory}/node-".encode() in (process / "environ").read_bytes():
                    found.append(int(process.name))
        return found

    def kill(self, node: Any) -> None:
        """SIGKILL to the raylet, as when a machine goes."""
        self._cluster.remove_node(node, allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A cluster that starts with two nodes."""
    before = {name: os.environ.get(name) for name in NODE_SETTINGS}
    os.environ.update(NODE_SETTINGS)
    nodes = Nodes(tmp_path_factory.mktemp("nodes"))
    try:
        nodes.add()
        nodes.add()
        yield nodes
    finally:
        with contextlib.suppress(Exception):
            import ray

            ray.shutdown()
        nodes.shutdown()
        supervision.restore_sigchld()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def cluster_pool(nodes: Nodes) -> Iterator[RayPool]:
    """A pool on two living nodes at least."""
    with RayPool(nodes.address) as pool:
        yield pool
