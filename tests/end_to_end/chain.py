"""Helpers to run the whole pipeline on a small recipe with `mlgo run`."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

RECIPES = Path(__file__).parents[2] / "components" / "core" / "projects" / "recipes"


TINY = RECIPES / "tiny.yaml"
ACCEPTED = ("--min-reduction-percent", "-100")
"""Options with which the verdict on any policy is "better"."""


def command(run: Path, *more: str, recipe: Path = TINY) -> list[str]:
    return [
        sys.executable,
        "-m",
        "pipelines",
        "run",
        "--recipe",
        str(recipe),
        "--preset",
        "tiny",
        "--output",
        str(run),
        *more,
    ]


def mlgo_run(run: Path, *more: str, recipe: Path = TINY) -> str:
    words = command(run, *more, recipe=recipe)
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def reused(output: str) -> list[str]:
    """Return the names of the steps that a run reports as reused."""
    return re.findall(r"^\[(\S+)\] reused", output, re.MULTILINE)


def run_until(
    line: str,
    command_line: list[str],
    ready: Callable[[], bool] = lambda: True,
    signal_number: signal.Signals = signal.SIGKILL,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command, end it by a signal once it is ready after a line that begins so, and return what it said."""
    said: list[str] = []
    with subprocess.Popen(
        command_line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            for one in process.stdout:
                said.append(one)
                if one.startswith(line):
                    break
            else:
                raise AssertionError("".join(said)[-8000:])
            while not ready():
                assert process.poll() is None, "".join(said)
                time.sleep(0.05)
            process.send_signal(signal_number)
            said.append(process.communicate(timeout=180)[0])  # its steps end, too
        finally:
            process.kill()
    return "".join(said)
