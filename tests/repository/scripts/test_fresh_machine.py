"""`.ci/fresh-machine` takes its commands from README and leaves nothing behind. CONTRIBUTING.md says when to run it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / ".ci" / "fresh-machine"


def test_commands_are_those_of_readme() -> None:
    extraction = re.search(r"^ *own=\$\((awk .*?\| sed .*?)\)$", SCRIPT.read_text(), re.M | re.S)
    assert extraction
    command = extraction[1].replace("/root/mlgo-pipeline/README.md", str(ROOT / "README.md"))
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
    block = re.search(r"^## Your own project\n+```shell\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert block
    expected = block[1].replace("YOUR_PROJECT", "/root/project").replace("--train-minutes 60", "--train-minutes 1")
    assert said == expected and expected != block[1] and "make setup" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="the script needs root")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_killed_run_leaves_no_directory_mount_or_process(tmp_path: Path, number: signal.Signals) -> None:
    """A fake debootstrap mounts and waits, as the real one may when it is killed."""
    debootstrap = tmp_path / "bin" / "debootstrap"
    debootstrap.parent.mkdir()
    debootstrap.write_text(
        "#!/bin/sh\nfor root; do case $root in */root) break;; esac; done\n"
        f'mkdir -p "$root/proc" && mount -t proc proc "$root/proc" && touch {tmp_path}/started && exec sleep 98765\n'
    )
    debootstrap.chmod(0o755)
    parent = tmp_path / "place"
    parent.mkdir()
    environment = {**os.environ, "PATH": f"{debootstrap.parent}:{os.environ['PATH']}", "TMPDIR": str(parent)}
    running = subprocess.Popen([SCRIPT], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until((tmp_path / "started").exists, process=running)
    running.send_signal(number)
    assert running.wait(timeout=60) == (130 if number == signal.SIGINT else 143)
    assert list(parent.iterdir()) == []
    assert str(parent) not in Path("/proc/mounts").read_text()
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert b"sleep\x0098765\x00" not in commands


def test_unknown_option_is_named() -> None:
    done = subprocess.run([SCRIPT, "--nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "unknown option --nothing" in done.stderr and "remedy" in done.stderr
