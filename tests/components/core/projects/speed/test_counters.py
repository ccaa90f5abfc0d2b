"""Tests of the instruction counters and the parsers of their output."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from components.core.projects.speed.counters import Count, Counter, find_counter, read_callgrind, read_perf
from components.platform.errors import UserError


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("# started on Sat\n\n1200,,instructions:u,9,100.00,2.4,insn\n500,,cycles:u,9,100.00,,\n", (1200, 500)),
        ("7,,cpu_core/instructions/u,9,50.00,,\n5,,cpu_atom/instructions/u,9,50.00,,\n", (12, None)),
        ("8,,instructions:u,9,100.00,,\n<not supported>,,cycles:u,0,100.00,,\n", (8, None)),
        ("<not supported>,,instructions:u,0,100.00,,\n<not supported>,,cycles:u,0,100.00,,\n", None),
        ("<not counted>,,instructions:u,0,100.00,,\n9,,cycles:u,0,100.00,,\n", None),
        ("0,,instructions:u,0,100.00,,\n0,,cycles:u,0,100.00,,\n", None),
        ("", None),
    ],
)
def test_read_perf(text: str, count: tuple[int, int | None] | None) -> None:
    assert read_perf(text) == (None if count is None else Count(*count))


def test_read_callgrind() -> None:
    text = "version: 1\nevents: Ir\nsummary: 123456\n\nfn=(1)\n0 5\n\ntotals: 123456\n"
    assert read_callgrind(text) == Count(123456, None)
    assert read_callgrind("version: 1\nevents: Ir\n") is None


def test_counter_of_this_machine_counts(tmp_path: Path) -> None:
    counter = find_counter()
    figures = tmp_path / "figures"
    subprocess.run([*counter.command(figures), "/bin/true"], check=True)
    # The program does nothing: only the dynamic linker executes instructions.
    assert 10_000 < counter.read(figures).instructions < 10_000_000


def test_processes_that_a_command_starts_count_too(tmp_path: Path) -> None:
    counter = find_counter()
    script = "sed -n '$p' /etc/services; (awk 'BEGIN { for (i = 0; i < 20000; ++i) n += i }')"
    counts = []
    for name, words in (("shell", ["/bin/sh", "-c", ":"]), ("children", ["/bin/sh", "-c", script])):
        figures = tmp_path / name
        subprocess.run([*counter.command(figures, children=True), *words], check=True, stdout=subprocess.DEVNULL)
        counts.append(counter.read(figures, children=True).instructions)
    assert counts[1] > counts[0] + 2_000_000
    with pytest.raises(UserError, match="counted nothing"):
        counter.read(tmp_path / "nothing", children=True)


def test_perf_that_does_not_run_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf = tmp_path / "perf"
    perf.write_text("#!/bin/sh\necho 'no perf for this kernel' >&2\nexit 2\n")
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="valgrind") as caught:
        find_counter()
    assert "valgrind" in caught.value.remedy


def test_missing_counts_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="counted nothing"):
        Counter("callgrind", Path("/usr/bin/valgrind"), 1, parallel=True).read(tmp_path / "figures")


def test_error_without_a_counter_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UserError, match="valgrind is not installed") as caught:
        find_counter()
    assert caught.value.remedy == "sudo apt-get install valgrind"
