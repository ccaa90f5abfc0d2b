"""Runs of the PPO step, as a user starts them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fork_server import ForkedStep

ITERATIONS = 5


LEARNING: dict[str, list[str | int]] = {
    "dqn": [],  # the default: values of actions from measured flips
    "ppo": ["--credit-assignment", "function", "--algorithm", "ppo"],
    "ppo_of_flips": ["--credit-assignment", "counterfactual", "--algorithm", "ppo"],
    "es": ["--algorithm", "es", "--samples", 4],
}
"""Name of a learning method -> its options."""

LEARNING_BY_DEFAULT = pytest.mark.parametrize("inputs", ["dqn"], indirect=True, scope="session")
"""For tests that do not depend on the learning method."""


def step(name, *arguments):
    """Run a step; raise subprocess.CalledProcessError with its output if it fails."""
    if name in ("ppo", "warmstart"):
        process = ForkedStep(name, *arguments)
        said = process.communicate()
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode or 0, process.args, *said)
    else:
        subprocess.run([sys.executable, "-m", f"components.{name}", *map(str, arguments)], check=True)


def train(inputs, where: Path, fresh=False):
    """Train in `where`/root to the end; return the policy's report.

    fresh: in an interpreter of its own, with another hash seed than that of the trainings that are forked.
    """
    arguments = [*inputs, "--root-dir", where / "root", "--output", where / "policy"]
    if fresh:
        subprocess.run([sys.executable, "-m", "components.ppo", *map(str, arguments)], check=True)
    else:
        step("ppo", *arguments)
    return json.loads((where / "policy" / "report.json").read_text())
