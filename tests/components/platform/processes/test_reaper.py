"""Tests that the next process removes the scratch files of a process that died together with its reaper."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from components.platform.processes import reaper
from tests.support.waiting import wait_until


def test_scratch_directories_of_dead_processes_are_removed(tmp_path: Path) -> None:
    names = ("mlgo-scratch-a", "mlgo-scratch-b", "mlgo-scratch-c", "x")
    dead, alive, young, other = (tmp_path / name for name in names)
    for directory in (dead, alive, young, other):
        (directory / "deep").mkdir(parents=True)
    for directory in (dead, alive, other):
        os.utime(directory, (0, time.time() - 2 * reaper._MIN_AGE_S))
    lock = os.open(alive, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    reaper._remove_stale_scratch(tmp_path)
    os.close(lock)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlgo-scratch-b", "mlgo-scratch-c", "x"]


def test_scratch_of_process_killed_with_its_reaper_is_removed_later(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom components.platform.processes import reaper\n"
        "reaper._memory_directory = lambda: Path(sys.argv[1])\nprint(reaper.REAPER.scratch(),"
        " reaper.REAPER._server.pid, flush=True)\ntime.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    scratch, server = process.stdout.readline().split()
    os.utime(scratch, (0, time.time() - 2 * reaper._MIN_AGE_S))
    reaper._remove_stale_scratch(tmp_path)
    assert Path(scratch).is_dir()  # its owner is alive
    os.kill(int(server), 9)
    process.kill()
    process.communicate()
    assert Path(scratch).is_dir()
    reaper._remove_stale_scratch(tmp_path)
    assert not Path(scratch).exists()


def test_interrupt_while_the_reaper_is_closed_is_quiet() -> None:
    program = (
        "from components.platform.processes.reaper import REAPER\n"
        "print(REAPER.scratch(), REAPER._server.pid, flush=True)\ninput()\n"  # ends with REAPER.close
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, stderr=-1, text=True)
    assert process.stdout is not None and process.stdin is not None
    scratch, server = process.stdout.readline().split()
    os.kill(int(server), signal.SIGSTOP)
    try:
        process.stdin.write("\n")
        process.stdin.flush()
        wait_until(lambda: _waits_for(process.pid) == "wait4")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "") and Path(scratch).is_dir()
    finally:
        os.kill(int(server), signal.SIGCONT)
    wait_until(lambda: not Path(scratch).exists())


def _waits_for(pid: int) -> str:
    """Return the name of the system call that a process waits in, where it is one of two."""
    number = Path(f"/proc/{pid}/syscall").read_text().split()[0]
    return {"0": "read", "61": "wait4"}.get(number, number)
