"""Tests of locks between processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage.shared_state.file_lock import exclusive_lock

HOLD = """
import sys, time
from pathlib import Path
from components.platform.storage.shared_state.file_lock import exclusive_lock
with exclusive_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_waits_for_a_process_and_gets_the_lock_when_it_is_killed(tmp_path: Path) -> None:
    messages: list[str] = []
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / "lock"], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        threading.Timer(1.5, holder.send_signal, [signal.SIGKILL]).start()
        with exclusive_lock(tmp_path / "lock", "waiting for another build", messages.append):
            assert holder.wait(2) == -signal.SIGKILL
    assert messages == ["waiting for another build"]


def test_free_lock_prints_nothing_and_can_be_used_again(tmp_path: Path) -> None:
    messages: list[str] = []
    for _ in range(2):
        with exclusive_lock(tmp_path / "lock", "waiting", messages.append):
            pass
    assert messages == [] and (tmp_path / "lock").exists()


def test_stopped_holder_is_an_error_after_a_while(tmp_path: Path) -> None:
    messages: list[str] = []
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / "lock"], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        holder.send_signal(signal.SIGSTOP)
        with (
            pytest.raises(UserError, match="another process"),
            exclusive_lock(tmp_path / "lock", "waiting", messages.append, limit_s=0.2),
        ):
            pytest.fail("it is held")
        holder.kill()
    assert messages == ["waiting"]
