"""Scratch files of a process that died together with its guard are the next one's to remove."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

from components.compiler import guard


def test_scratch_directories_whose_owner_is_gone_are_swept(tmp_path: Path) -> None:
    names = ("mlgo-scratch-a", "mlgo-scratch-b", "mlgo-scratch-c", "x")
    dead, alive, young, other = (tmp_path / name for name in names)
    for directory in (dead, alive, young, other):
        (directory / "deep").mkdir(parents=True)
    for directory in (dead, alive, other):
        os.utime(directory, (0, time.time() - 2 * guard._YOUNG_S))
    lock = os.open(alive, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    guard._sweep(tmp_path)
    os.close(lock)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlgo-scratch-b", "mlgo-scratch-c", "x"]


def test_what_a_kill_of_all_descendants_leaves_is_removed_later(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom components.compiler import guard\n"
        "guard._scratch_place = lambda: Path(sys.argv[1])\nprint(guard.GUARD.scratch(), guard.GUARD._shell.pid,"
        " flush=True)\ntime.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    place, shell = process.stdout.readline().split()
    os.utime(place, (0, time.time() - 2 * guard._YOUNG_S))
    guard._sweep(tmp_path)
    assert Path(place).is_dir()  # its owner lives
    os.kill(int(shell), 9)
    process.kill()
    process.communicate()
    assert Path(place).is_dir()
    guard._sweep(tmp_path)
    assert not Path(place).exists()
