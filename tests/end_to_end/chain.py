"""Helpers to run the whole pipeline on a small recipe with `mlgo run`."""

from __future__ import annotations

import re
import subprocess
import sys
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
