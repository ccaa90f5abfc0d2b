"""Runs of the PPO step, as a user starts them."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.vocab import load_vocab
from components.core.policy.dense import DensePolicy
from tests.support.fork_server import ForkedStep
from tests.support.samples import random_layers

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


SMALL = {"modules": 2, "samples": 3, "validate_every": 2, "workers": "local:2", "seed": 5}
"""Options of trainings that take seconds."""


def command_line(options: Mapping[str, Any]) -> list[Any]:
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]


def write_start_policy(directory: Path, vocab: Path, specs: Iterable[FeatureSpec]) -> tuple[FeatureSpec, ...]:
    """Write an untrained policy of the features that a vocab has; return them."""
    buckets = load_vocab(vocab)
    features = tuple(spec for spec in specs if spec.name in buckets)
    directory.mkdir()
    layers = random_layers([2 * len(features), 64, 64, 32, 2], scaled=True)
    DensePolicy("inlining", features, buckets, layers).save(directory)
    return features


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
