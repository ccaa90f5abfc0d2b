"""Starts steps in processes that have imported TensorFlow already, which takes 3 s of processor time each time.

A step that is started here is a process of its own with the main module, command line, environment, output and exit
status that it has after `python -m components.STEP`. But it is forked from a process that imported modules and did
nothing else. All steps of one server have the same hash seed, so a test of reproducibility also needs a run that is
started as users start it.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path


class ForkedStep:
    """A running step, with those methods of subprocess.Popen that tests use.

    Args:
        name: of the step: "ppo".
        arguments: of its command line.
        environment: its variables in addition to those of this process.
    """

    def __init__(self, name: str, *arguments: object, environment: Mapping[str, str] | None = None) -> None:
        self.args = [f"components.{name}", *map(str, arguments)]
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.support.preloaded"])
        self._output = tempfile.TemporaryDirectory()
        variables = dict(os.environ) | dict(environment or {})
        run = (self.args, variables, Path.cwd(), Path(self._output.name))
        self._process: BaseProcess = context.Process(target=_run, args=run)
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """Exit status; the negative number of the signal that killed the step; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        if self.poll() is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end of the step; return its stdout and stderr.

        Raises:
            subprocess.TimeoutExpired: after `timeout` seconds.
        """
        self._process.join(timeout)
        if timeout is not None and self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        stdout, stderr = (Path(self._output.name, name).read_text() for name in _STREAMS)
        return stdout, stderr


_STREAMS = {"stdout": 1, "stderr": 2}


def _run(command: list[str], variables: dict[str, str], directory: Path, output: Path) -> None:
    """Run a step in this process, which was just forked, and end it as an interpreter ends."""
    for name, descriptor in _STREAMS.items():
        os.dup2(os.open(output / name, os.O_WRONLY | os.O_CREAT), descriptor)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(directory)
    sys.argv = list(command)
    try:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
