"""Tests of the limits of a container, as its cgroup's files show them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from components.platform.processes import cgroup
from components.platform.processes.cgroup import available_memory, available_processors


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of the files; the machine has 64 processors."""
    monkeypatch.setattr(cgroup, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(64)))
    return tmp_path


@pytest.mark.parametrize(
    ("quota", "processors"),
    [("3200000 100000", 32), ("150000 100000", 2), ("10000 100000", 1), ("9900000 100000", 64), ("max 100000", 64)],
)
def test_processors_are_those_of_the_quota(limits: Path, quota: str, processors: int) -> None:
    (limits / "cpu.max").write_text(f"{quota}\n")
    assert available_processors() == processors


def test_memory_is_that_of_the_limit(limits: Path) -> None:
    machine = available_memory()
    assert available_processors() == 64 and machine == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit, memory in (("1048576", 1 << 20), ("max", machine), (str(machine * 2), machine)):
        (limits / "memory.max").write_text(f"{limit}\n")
        assert available_memory() == memory
