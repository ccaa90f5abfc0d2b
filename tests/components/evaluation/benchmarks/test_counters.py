"""What counts instructions, and what is read of its figures."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from components.core.console import UserError
from components.evaluation.benchmarks.counters import Count, Counter, find_counter, read_callgrind, read_perf


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
def test_what_perf_says(text: str, count: tuple[int, int | None] | None) -> None:
    assert read_perf(text) == (None if count is None else Count(*count))


def test_what_callgrind_says() -> None:
    text = "version: 1\nevents: Ir\nsummary: 123456\n\nfn=(1)\n0 5\n\ntotals: 123456\n"
    assert read_callgrind(text) == Count(123456, None)
    assert read_callgrind("version: 1\nevents: Ir\n") is None


def test_the_counter_of_this_machine_counts(tmp_path: Path) -> None:
    counter = find_counter()
    figures = tmp_path / "figures"
    subprocess.run([*counter.command(figures), "/bin/true"], check=True)
    # A program that does nothing: the dynamic linker's work.
    assert 10_000 < counter.read(figures).instructions < 10_000_000


def test_a_machine_on_which_nothing_counts_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UserError, match="valgrind is missing") as caught:
        find_counter()
    assert caught.value.remedy == "sudo apt-get install valgrind"


def test_a_perf_that_does_not_run_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perf = tmp_path / "perf"
    perf.write_text("#!/bin/sh\necho 'no perf for this kernel' >&2\nexit 2\n")
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="valgrind is missing"):
        find_counter()


def test_figures_that_are_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="counted nothing"):
        Counter("callgrind", Path("/usr/bin/valgrind"), 1, parallel=True).read(tmp_path / "figures")
