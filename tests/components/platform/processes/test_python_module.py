"""Tests that modules of this project run as programs, whatever else has their names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from components.platform.processes.python_module import module_command
from tests.support.wheel import write_their_packages


def test_module_runs_like_python_does_with_option_m(tmp_path: Path) -> None:
    """The working directory has packages of the same names; sys.argv, name in usages and status are the same."""
    write_their_packages(tmp_path)
    command = [*module_command("components.log"), "show"]
    done = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.startswith("Usage: mlgo log show ") and "FILE" in done.stderr


def test_interpreter_and_its_options_are_passed_on() -> None:
    command = module_command("components.log", python="/x/python", options=("-W", "ignore"))
    assert command[:4] == ["/x/python", "-P", "-W", "ignore"] and command[-1] == "components.log"
    assert module_command("components.log")[0] == sys.executable
