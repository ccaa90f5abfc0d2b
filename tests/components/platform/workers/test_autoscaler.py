"""Requests to version 2 of Ray's own autoscaler, which KubeRay runs. Its nodes are raylets on this machine.

It starts nothing for a request that its maximum cannot meet in whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from components.platform.processes import supervision
from components.platform.workers.autoscaler import CpuRequest
from components.platform.workers.ray_pool import RayPool
from components.platform.workers.settings import NODE_SETTINGS

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[4]
MAX_NODES = 3
HEAD = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"
"""ID that Ray's node provider for tests gives the head."""
_LISTS = "file_mounts initialization_commands setup_commands head_setup_commands worker_setup_commands"
_COMMANDS = "head_start_ray_commands worker_start_ray_commands cluster_synced_files rsync_exclude rsync_filter"


def configuration(gcs_address: str) -> dict[str, Any]:
    """Return the autoscaler's configuration: at most MAX_NODES nodes of one processor, and a head with none."""
    empty: dict[str, Any] = {name: [] for name in (*_LISTS.split(), *_COMMANDS.split())}
    provider = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
    resources = {"CPU": 1, "object_store_memory": 100 << 20}
    return {
        **empty,
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        "auth": {},
        "docker": {},
        "cluster_name": "test",
        "max_workers": 8,
        "idle_timeout_minutes": 5,
        "upscaling_speed": 1.0,
        # "external": the wheel lacks the defaults of the type "fake_multinode".
        "provider": {
            "type": "external",
            "module": provider,
            "launch_multiple": True,
            "gcs_address": gcs_address,
            "head_node_id": HEAD,
        },
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "compile": {"resources": resources, "node_config": {}, "min_workers": 0, "max_workers": MAX_NODES},
        },
    }


def kill_session(directory: str) -> None:
    """Kill the processes of a Ray session and their children: the autoscaler's nodes outlive their head."""
    parents: dict[int, int] = {}
    doomed: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if directory.encode() in (process / "cmdline").read_bytes():
                doomed.add(int(process.name))
    for process_id in doomed | {child for child, parent in parents.items() if parent in doomed}:
        with contextlib.suppress(OSError):
            os.kill(process_id, signal.SIGKILL)


@pytest.fixture(scope="module")
def autoscaling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a head with an autoscaler, and no node before the first test that takes it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield from autoscaling_head(tmp_path_factory.mktemp("head"), monkeypatch)


def autoscaling_head(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    from ray._private import services
    from ray.cluster_utils import Cluster

    for name, value in {**NODE_SETTINGS, "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_enable_autoscaler_v2", "1")
    monkeypatch.setenv("RAY_CLOUD_INSTANCE_ID", HEAD)
    monkeypatch.setenv("RAY_OVERRIDE_NODE_ID_FOR_TESTING", HEAD)
    ip = services.get_node_ip_address()
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    (directory / "autoscaler.json").write_text(json.dumps(configuration(f"{ip}:{port}")))
    cluster = Cluster()
    head = None
    try:
        head = cluster.add_node(
            num_cpus=0,
            include_dashboard=False,
            object_store_memory=100 << 20,
            autoscaling_config=str(directory / "autoscaler.json"),
            gcs_server_port=port,
            node_ip_address=ip,
        )
        yield cluster.address
    finally:
        cluster.shutdown()
        if head is not None:
            kill_session(head.get_session_dir_path())
        supervision.restore_sigchld()


def square(number: int) -> int:
    return number * number


def in_own_process(function: Callable[[str], None], address: str) -> None:
    """Run a test in a process of its own: Ray ends one that it takes for cut off from its cluster."""
    code = f"import sys; from {__name__} import {function.__name__}; {function.__name__}(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, address], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_more_items_than_the_cluster_may_have_processors_are_processed_by_all(autoscaling: str) -> None:
    in_own_process(process_until_all_nodes_are_there, autoscaling)


def process_until_all_nodes_are_there(address: str) -> None:
    with RayPool(address) as pool:
        started_s = time.monotonic()
        while True:  # a first node processes all items before the others are there
            assert dict(pool.map_unordered(square, range(50))) == {i: i * i for i in range(50)}
            if pool.size == MAX_NODES:
                break
            assert time.monotonic() - started_s < 240, pool._cluster.description()
            time.sleep(1)


def test_largest_request_that_can_be_met_is_found(autoscaling: str) -> None:
    """Also where nodes have been started before."""
    in_own_process(find_largest_request, autoscaling)


def find_largest_request(address: str) -> None:
    import ray

    ray.init(address=address, log_to_driver=False)
    request = CpuRequest(ray)
    request.want(700)
    sent = [request._sent]
    end_s = time.monotonic() + 240
    while (request._met, request._unmet) != (MAX_NODES, MAX_NODES + 1):
        assert time.monotonic() < end_s, (sent, request.description())
        time.sleep(0.2)
        request.update()
        sent += [request._sent] if request._sent != sent[-1] else []
    assert sent[:5] == [700, 175, 43, 10, 2] and sent[-1] == MAX_NODES
    request.want(900)
    assert request._sent == MAX_NODES
    assert "3 requested" in request.description()
    request.want(0)
    assert request._sent == 0
