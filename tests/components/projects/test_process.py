"""Build tools are stopped with everything that they started, also what lives in a process group of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from components.projects.process import log_tail, run_logged

# As a build tool does: the compiler in a process group of its own. This one ignores SIGTERM as well.
TOOL = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[2] == "stubborn" else signal.SIG_DFL)
code = "import time; print('started', flush=True); time.sleep(60)"  # itself: a parent may see it before its name
child = subprocess.Popen([sys.executable, "-c", code, sys.argv[1]], process_group=0)
time.sleep(60)
"""


def processes(mark: Path) -> list[str]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdecimal() and str(mark).encode() in Path("/proc", entry, "cmdline").read_bytes():
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


@pytest.mark.parametrize("manners", ["polite", "stubborn"])
def test_an_interruption_ends_the_tool_and_the_compilers_in_groups_of_their_own(tmp_path: Path, manners: str) -> None:
    mark = tmp_path / "mark"

    def interrupt(line: str) -> None:
        if line.strip() == "started":
            assert len(processes(mark)) == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_logged([sys.executable, "-c", TOOL, str(mark), manners], tmp_path, tmp_path / "log", None, interrupt)
    assert processes(mark) == []
