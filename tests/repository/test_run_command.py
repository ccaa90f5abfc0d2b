"""Commands of tests that are forked from a server behave like those that an interpreter is started for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import run_command

PROBE = """
import atexit, json, os, signal, sys, threading, time
from components.platform.rayjob.submit import POLL_S

atexit.register(print, "exit function")
threading.Timer(0.2, print, ["thread"]).start()
facts = {"argv": sys.argv, "path": sys.path, "name": __name__, "directory": os.getcwd(), "poll_s": POLL_S}
print(json.dumps(facts | {"environment": dict(os.environ), "tensorflow": "tensorflow" in sys.modules}, sort_keys=True))
print("to stderr", file=sys.stderr)
match sys.argv[1]:
    case "status":
        sys.exit(300)
    case "message":
        sys.exit("a message")
    case "none":
        sys.exit()
    case "raise":
        raise ValueError("an error")
    case "kill":
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    case "interrupt":
        signal.raise_signal(signal.SIGINT)
    case "become":
        os.execv(sys.executable, [sys.executable, "-c", "import os; print(os.environ['OWN'])"])
    case "close":
        os.close(1)
    case "wait":
        time.sleep(1000)
"""


ENDS = ("status", "message", "none", "raise", "kill", "interrupt", "become", "close")


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "probe.py").write_text(PROBE)
    monkeypatch.setenv("OWN", "value")
    return tmp_path


@pytest.mark.parametrize(
    ("how", "poll_s"),
    [*((how, "0.5") for how in ENDS), ("return", "0.25")],
)
def test_forked_command_behaves_like_a_started_one(
    probe: Path, how: str, poll_s: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module reads MLGO_POLL_S when it is imported."""
    monkeypatch.setenv("MLGO_POLL_S", poll_s)
    command = [sys.executable, "-m", "probe", how]
    # Without env, subprocess.run passes on what C libraries of this process have set, too.
    started = subprocess.run(command, cwd=probe, env=os.environ, capture_output=True, text=True, timeout=60)
    for _ in range(2):  # the second is forked, whatever came before
        done = run_command("probe", how, cwd=probe)
        assert (done.returncode, done.stdout) == (started.returncode, started.stdout)
        assert done.stderr.splitlines()[-1] == started.stderr.splitlines()[-1]


def test_forked_command_ends_in_time(probe: Path) -> None:
    for _ in range(2):
        with pytest.raises(subprocess.TimeoutExpired):
            run_command("probe", "wait", cwd=probe, timeout=1)
