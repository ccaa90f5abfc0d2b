"""The whole chain on a small recipe, as a command: what several tests run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

RECIPES = Path(__file__).parents[2] / "components" / "corpus" / "recipes"


def command(run: Path, *more: str, recipe: str = "tiny") -> list[str]:
    return [
        sys.executable, "-m", "pipelines", "run", "--recipe", str(RECIPES / f"{recipe}.yaml"), "--preset", "tiny",
        "--output", str(run), *more,
    ]  # fmt: skip


def mlgo_run(run: Path, *more: str, recipe: str = "tiny") -> str:
    words = command(run, *more, recipe=recipe)
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def reused(output: str) -> list[str]:
    """The steps that a run says it reused."""
    return re.findall(r"^\[(\S+)\] reused", output, re.MULTILINE)
