"""Runs of the PPO step, as a user starts them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ITERATIONS = 5


LEARNING: dict[str, list[str | int]] = {
    "dqn": [],  # the default: values of actions from measured flips
    "ppo": ["--credit-assignment", "function", "--algorithm", "ppo"],
    "ppo_of_flips": ["--credit-assignment", "counterfactual", "--algorithm", "ppo"],
    "es": ["--algorithm", "es", "--samples", 4],
}
"""How a training learns -> its options."""

LEARNING_BY_DEFAULT = pytest.mark.parametrize("inputs", ["dqn"], indirect=True, scope="session")
"""For tests in which it is of no consequence how a training learns."""


def step(name, *arguments, **options):
    return subprocess.run([sys.executable, "-m", f"components.{name}", *map(str, arguments)], check=True, **options)


def train(inputs, where: Path):
    """Trains in `where`/root to the end; returns the policy's report."""
    step("ppo", *inputs, "--root-dir", where / "root", "--output", where / "policy")
    return json.loads((where / "policy" / "report.json").read_text())
