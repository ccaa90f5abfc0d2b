"""Tests that build tools are stopped with all their descendants, including those in other process groups."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from components.core.processes.build_tools import log_tail, run_logged

# Like a build tool, it runs the compiler in a separate process group. With "stubborn" it ignores SIGTERM.
TOOL = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[2] == "stubborn" else signal.SIG_DFL)
code = "import time; print('started', flush=True); time.sleep(60)"  # after its exec
child = subprocess.Popen([sys.executable, "-c", code, sys.argv[1]], process_group=0)
time.sleep(60)
"""


def processes_with(marker: Path) -> list[str]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdecimal() and str(marker).encode() in Path("/proc", entry, "cmdline").read_bytes():
                found.append(entry)
        except OSError:
            continue
    return found


def test_output_goes_to_the_log_and_to_the_caller(tmp_path: Path) -> None:
    lines: list[str] = []
    code = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    assert run_logged([sys.executable, "-u", "-c", code], tmp_path, tmp_path / "log", None, lines.append) == 3
    assert [line.strip() for line in lines] == ["one", "two"]
    assert log_tail(tmp_path / "log", 2) == "one\ntwo"


@pytest.mark.parametrize("behavior", ["polite", "stubborn"])
def test_interrupt_stops_the_tool_and_compilers_in_separate_groups(tmp_path: Path, behavior: str) -> None:
    marker = tmp_path / "marker"

    def interrupt(line: str) -> None:
        if line.strip() == "started":
            assert len(processes_with(marker)) == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_logged([sys.executable, "-c", TOOL, str(marker), behavior], tmp_path, tmp_path / "log", None, interrupt)
    assert processes_with(marker) == []
