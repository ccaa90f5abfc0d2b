"""Tests of what a process tree, or a container, uses."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.platform.processes import cgroup
from components.platform.processes.cgroup import own_cgroup
from components.platform.processes.usage import UsageMeter

MB = 10**6
BUSY = "import time; end = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"
HOLD = "block = bytearray({size}); block[::4096] = b'x' * len(block[::4096]); print('ready', flush=True); input()"
FILES = {
    "memory.current": "900000000\n",
    "memory.peak": "1000000000\n",
    "memory.stat": "anon 100000000\nfile 700000000\nactive_file 400000000\ninactive_file 300000000\n"
    "slab_reclaimable 50000000\n",
    "cpu.stat": "usage_usec 5000000\nuser_usec 4000000\nsystem_usec 1000000\n",
}
"""Of a container, as Linux 6.1 writes them."""


def python(code: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of a cgroup that has this process and its parents only."""
    monkeypatch.setattr(cgroup, "_CGROUP", tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "cgroup.procs").write_text(f"{os.getppid()}\n{os.getpid()}\n")
    return tmp_path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without cgroups of version 2."""
    monkeypatch.setattr(cgroup, "_CGROUP", tmp_path / "none")


@pytest.fixture
def holders(machine: None) -> Iterator[list[subprocess.Popen[str]]]:
    processes = [python(HOLD.format(size=60 * MB)) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    yield processes
    for process in processes:
        process.communicate("\n", timeout=60)


def test_memory_of_processes_at_the_same_time_is_summed(holders: list[subprocess.Popen[str]]) -> None:
    with UsageMeter() as meter:
        used = meter.read()
    assert 180 * MB < used.peak_memory_bytes < 180 * MB + 4000 * MB
    assert 0 < used.seconds < 60


def test_peak_is_kept_after_the_processes_end(holders: list[subprocess.Popen[str]]) -> None:
    with UsageMeter() as meter:
        peak = meter.read().peak_memory_bytes
        for process in holders:
            process.communicate("\n", timeout=60)
        holders.clear()
        assert meter.read().peak_memory_bytes == peak


def test_thread_takes_samples(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks while the processes are there."""
    monkeypatch.setattr("components.platform.processes.usage.SAMPLE_S", 0.05)
    with UsageMeter() as meter:
        before = meter.read().peak_memory_bytes
        processes = [python(HOLD.format(size=2 * before // 3)) for _ in range(3)]
        assert all(process.stdout.readline() for process in processes)
        for _wait in range(600):
            time.sleep(0.1)
            if meter._peak_bytes > 2 * before:
                break
        for process in processes:
            process.communicate("\n", timeout=60)
    assert meter.read().peak_memory_bytes > 2 * before
    assert "usage" not in [thread.name for thread in threading.enumerate()]


def test_processors_of_children_count_while_they_run_and_after(machine: None) -> None:
    with UsageMeter() as meter:
        before_s = meter.read().processor_seconds
        # The middle process has waited for its child, and is alive.
        inner = BUSY.format(seconds=0.5)
        run_inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
        child = python(f"{run_inner}; print(1, flush=True); input()")
        assert child.stdout is not None and child.stdout.readline() == "1\n"
        running_s = meter.read().processor_seconds
        assert running_s - before_s > 0.45
        child.communicate("\n", timeout=60)
        ended_s = meter.read().processor_seconds
    assert running_s <= ended_s < running_s + 5


def test_container_is_measured_without_cached_files(container: Path) -> None:
    with UsageMeter() as meter:
        (container / "cpu.stat").write_text("usage_usec 17500000\n")
        (container / "memory.current").write_text("980000000\n")
        (container / "memory.peak").write_text("9000000000\n")
        (container / "memory.stat").write_text("active_file 20000000\ninactive_file 10000000\n")
        used = meter.read()
        (container / "memory.current").write_text("100000000\n")
        assert meter.read().peak_memory_bytes == used.peak_memory_bytes == 950 * MB
    assert used.processor_seconds == 12.5


def test_kernels_peak_is_the_limit_of_a_processs_own(container: Path) -> None:
    """A process' own maximum has files in it that another container has loaded."""
    (container / "memory.peak").write_text("1000000\n")
    with UsageMeter() as meter:
        assert meter.read().peak_memory_bytes == MB
        (container / "memory.peak").unlink()  # Linux before 5.19
        assert meter.read().peak_memory_bytes > MB


def test_vanished_files_are_no_error(container: Path) -> None:
    with UsageMeter() as meter:
        for name in FILES:
            (container / name).unlink()
        assert meter.read().processor_seconds == 0


def test_machine_without_cgroups_has_no_own(machine: None) -> None:
    assert own_cgroup() is None


@pytest.mark.parametrize("members", ["{own}\n{other}\n", "{parent}\n", "x\n", ""])
def test_cgroup_of_several_programs_is_not_taken(container: Path, members: str) -> None:
    assert own_cgroup() == container
    other = python("input()")
    (container / "cgroup.procs").write_text(members.format(own=os.getpid(), parent=os.getppid(), other=other.pid))
    assert own_cgroup() is None
    other.communicate("\n", timeout=60)
    (container / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (container / "memory.current").unlink()
    assert own_cgroup() is None, "the root of all cgroups"
