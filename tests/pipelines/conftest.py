"""Toy steps, real processes with their own package `components`; published clients; the fake KFP server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import components
from tests.support.schemas import PIPELINES_PYTHON, ROOT, PublishedClients, published_clients

COPY = '''
"""Writes the sum of the numbers in its inputs plus --add; says so; counts its runs in --count."""
import sys, time
from pathlib import Path
from components.platform.errors import UserError
from components.platform.command import run_step
from components.platform.storage import publish

def main():
    flags = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    with open(flags["--count"], "a") as stream:
        stream.write("x")
    while "--after" in flags and "running" not in Path(flags["--after"]).read_text():
        time.sleep(0.02)
    if "--fail" in flags:
        raise UserError("the toy is broken")
    if "--meet" in flags:
        # Ends only when that many steps run at the same time.
        place, number = flags["--meet"].split(":")
        Path(place, flags["--output"].replace("/", "_")).touch()
        while len(list(Path(place).iterdir())) < int(number):
            time.sleep(0.02)
    if "--root-dir" in flags:
        begun = Path(flags["--root-dir"], "begun")
        if not begun.exists():
            begun.write_text(flags["--count"])
            print("begun", flush=True)
            time.sleep(float(flags.get("--sleep", 0)))
    else:
        print("running", flush=True)
        time.sleep(float(flags.get("--sleep", 0)))
    if "--say" in flags:
        Path(flags["--say"]).write_text("yes")
    total = int(flags.get("--add", 0)) + sum(int((Path(d) / "n").read_text()) for f, d in flags.items() if f == "--in")
    with publish(Path(flags["--output"]), "trace") as directory:
        (directory / "n").write_text(str(total))

run_step(main)
'''


@pytest.fixture
def toy_root(tmp_path: Path) -> Path:
    """Return a directory with a package `components` that has the real platform, and the step `toy`."""
    root = tmp_path / "root"
    real = Path(components.__file__).parent
    (root / "components" / "toy").mkdir(parents=True)
    for name in ("platform", "__init__.py"):
        (root / "components" / name).symlink_to(real / name)
    (root / "components" / "toy" / "__init__.py").write_text("")
    (root / "components" / "toy" / "__main__.py").write_text(COPY)
    return root


@pytest.fixture(scope="session")
def published() -> Iterator[PublishedClients]:
    """Yield the clients that Google and Kubeflow publish."""
    with published_clients() as clients:
        yield clients


@pytest.fixture(scope="session")
def host() -> Iterator[str]:
    """Start tests/servers/kfp_server.py; yield its URL."""
    command = [str(PIPELINES_PYTHON), "-m", "tests.servers.kfp_server"]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
    server.communicate("", timeout=30)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a file of pushed images, without that of Ray's nodes."""
    document = {
        name: {"tag": f"r/{name}:1", "reference": f"r/{name}@sha256:{digit * 64}", "bytes": 1, "local_base": False}
        for name, digit in (("toolchain", "1"), ("training", "2"))
    }
    (tmp_path / "images.json").write_text(json.dumps(document))
    return tmp_path / "images.json"
