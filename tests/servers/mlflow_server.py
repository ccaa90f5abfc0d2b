"""An MLflow server, of the environment `pipelines`, to which docker/requirements/schemas.txt adds it."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.seaweedfs_server import free_ports
from tests.support.schemas import PIPELINES_PYTHON
from tests.support.waiting import wait_until


@contextmanager
def mlflow_server(directory: Path) -> Iterator[str]:
    """Serve runs and their artifacts from `directory` during the block; yield the URL."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [
        str(PIPELINES_PYTHON),
        *("-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{directory}/runs.db", "--artifacts-destination", str(directory / "files")),
    ]

    def answers() -> bool:
        try:
            return bool(urllib.request.urlopen(f"{url}/health", timeout=2).status == 200)
        except OSError:
            return False

    with (directory / "log").open("wb") as log:
        without_jobs = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # of its own, in five processes
        server = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=directory, env=without_jobs, start_new_session=True
        )
    try:
        wait_until(answers, f"MLflow, see {directory / 'log'}", timeout_s=300, every_s=0.2)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
