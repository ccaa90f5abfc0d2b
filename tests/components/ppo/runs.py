"""Runs of the PPO step, as a user starts them."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from components.core.formats.toolchain import load_toolchain
from components.core.formats.vocab import load_vocab
from components.core.policy.dense import DensePolicy
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


def training_options(corpus, toolchain, trace, warmstart, iterations):
    """Return the options of a training that takes seconds."""
    options = ["--corpus", corpus, "--toolchain", toolchain, "--trace", trace, "--warmstart", warmstart]
    options += ["--iterations", iterations, "--modules", 2, "--samples", 3, "--validate-every", 2]
    return [*options, "--workers", "local:2", "--seed", 5]


def write_untrained_policy(directory: Path, toolchain: Path, vocab: Path) -> Path:
    """Write a policy for inlining with random weights; return its directory."""
    buckets = load_vocab(vocab)
    features = tuple(spec for spec in load_toolchain(toolchain).features["inlining"] if spec.name in buckets)
    random, sizes = np.random.default_rng(0), [2 * len(features), 64, 64, 32, 2]
    layers = tuple(
        (random.normal(0, (2 / a) ** 0.5, (a, b)).astype(np.float32), np.zeros(b, np.float32))
        for a, b in itertools.pairwise(sizes)
    )
    directory.mkdir()
    DensePolicy("inlining", features, buckets, layers).save(directory)
    return directory


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
