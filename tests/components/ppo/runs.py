"""Runs of the PPO step, as a user starts them."""

import json
import subprocess
import sys
from pathlib import Path

ITERATIONS = 5


def step(name, *arguments, **options):
    return subprocess.run([sys.executable, "-m", f"components.{name}", *map(str, arguments)], check=True, **options)


def train(inputs, where: Path):
    """Trains in `where`/root to the end; returns the policy's report."""
    step("ppo", *inputs, "--root-dir", where / "root", "--output", where / "policy")
    return json.loads((where / "policy" / "report.json").read_text())
