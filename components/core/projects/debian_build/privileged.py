"""Runs scripts that mount file systems: as root on this machine, or in a container where that is refused."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from components.platform.errors import UserError
from components.platform.processes.build_tools import run_logged

IMAGE = "debian:bookworm-slim"
_NAMESPACES = ("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--propagation", "private")
_KILLED_AFTER_S = 10


def run_privileged(
    command: Sequence[object], directory: Path, log: Path, timeout_s: float, outside: Sequence[Path] = ()
) -> int:
    """Run a command as root in its own mount and PID namespaces, which end with it like all its processes.

    Args:
        command: an absolute path and arguments; everything that it needs is below `directory` or `outside`.
        directory: working directory, the same path inside a container.
        log: file to which the output is appended.
        outside: directories that it reads.

    Returns:
        Its exit status; 124 if it took longer than `timeout_s`.

    Raises:
        UserError: neither root nor docker is available.
    """
    limit = ["timeout", f"--kill-after={_KILLED_AFTER_S}", str(timeout_s)]
    words = [str(word) for word in command]
    if _may_mount():
        return run_logged([*limit, *_NAMESPACES, "--", *words], directory, log)
    _require_docker()
    name = f"mlgo-debian-{uuid.uuid4().hex[:12]}"
    mounts = [f"--volume={directory}:{directory}", *(f"--volume={path}:{path}:ro" for path in outside)]
    options = ["--rm", "--init", "--privileged", "--network=host", f"--workdir={directory}", f"--name={name}", *mounts]
    container = ["docker", "run", *options, IMAGE]
    try:
        return run_logged([*container, *limit, *_NAMESPACES, "--", *words], directory, log)
    finally:
        # A client that was killed leaves its container behind.
        with contextlib.suppress(OSError):
            subprocess.run(["docker", "rm", "--force", name], capture_output=True, stdin=subprocess.DEVNULL)


@cache
def _may_mount() -> bool:
    """Whether this process may mount file systems; root in a container usually may not."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    mount = [*_NAMESPACES, "--", "mount", "-t", "tmpfs", "mlgo", "/mnt"]
    return subprocess.run(mount, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0


def _require_docker() -> None:
    if shutil.which("docker"):
        done = subprocess.run(["docker", "version"], capture_output=True, stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            return
    raise UserError(
        "building Debian packages needs root that may mount file systems, or docker, and there is neither",
        "run it as root on a machine of its own, in a privileged container, or start docker",
    )
