"""Runs short programs for what they print; supervision.py runs compilers and programs of users."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def capture(
    command: Sequence[str | Path], timeout_s: float | None = None, errors: str = "replace", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program without input, and return its status and what it prints.

    errors: how bytes that are not UTF-8 are decoded. options: further ones of `subprocess.run`, whose errors it raises.
    """
    options = {"stdin": subprocess.DEVNULL, **options}
    return subprocess.run(command, capture_output=True, text=True, errors=errors, timeout=timeout_s, **options)


def read_output(command: Sequence[str | Path], timeout_s: float, **options: Any) -> str:
    """Return what a program prints; "" if it is missing, fails or takes longer. For the options see `capture`."""
    try:
        done = capture(command, timeout_s, **options)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
