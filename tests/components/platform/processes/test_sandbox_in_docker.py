"""Tests that the sandbox works in a container of Docker, under its default filter of system calls and capabilities."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from components.platform.processes import sandbox
from pipelines.images import docker_client

ROOT = Path(__file__).parents[4]
pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]


def test_landlock_keeps_its_rules_in_a_container() -> None:
    """The container has this machine's programs, in an image that is otherwise empty."""
    if sandbox._landlock_problem() is not None:
        pytest.skip("Landlock does not work here")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("bin", "lib", "lib64", "sbin"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
    places = {Path("/usr"), Path("/etc"), ROOT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    mounts = [word for place in sorted(places) for word in ("-v", f"{place}:{place}:ro")]
    names = "each_rule and landlock or outlives and landlock"
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", names, "-o", "addopts="]
    tests.append(str(Path(__file__).with_name("test_sandbox.py").relative_to(ROOT)))
    with docker_client() as client:
        tag = f"mlgo-test-sandbox:{os.getpid()}"
        image = json.loads(client.api.import_image_from_data(packed.getvalue(), *tag.split(":")))["status"]
        try:
            options = ["--rm", "--network", "none", "--tmpfs", "/tmp:exec", "-w", str(ROOT)]
            options += ["-e", f"PATH={os.environ['PATH']}"]
            variables = ["-e", f"PYTHONPATH={ROOT}", "-e", "PYTHONDONTWRITEBYTECODE=1", "-e", "HOME=/tmp"]
            command = ["docker", "run", *options, *variables, *mounts, image, *tests]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            client.images.remove(image, force=True)
    if done.returncode == 127:
        pytest.skip("the docker daemon mounts directories of another machine")
    assert done.returncode == 0 and " passed" in done.stdout and "skipped" not in done.stdout, done.stdout + done.stderr
