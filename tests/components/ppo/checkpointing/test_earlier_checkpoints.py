"""Checkpoints of earlier versions are read: files and keys as they wrote them, spelled out."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from components.platform.storage import write_manifest
from components.ppo.checkpointing import checkpoint
from components.ppo.training_state import TrainingState
from tests.components.ppo.points import policy

FEATURES, LAYERS = 4, [8, 64, 64, 32, 2]
ROWS = 3


def write_earlier(directory: Path) -> dict[str, np.ndarray]:
    """Write a checkpoint after two iterations with DQN; return its variables."""
    random = np.random.default_rng(0)
    shapes = [shape for a, b in itertools.pairwise(LAYERS) for shape in ((a, b), (b,))]
    variables: dict[str, np.ndarray] = {"step": np.int64(7)}  # type: ignore[dict-item]
    for i, shape in enumerate(shapes):
        variables[f"weights/{i}"] = random.normal(size=shape).astype(np.float32)
    moments = [shape for shape in shapes for _ in range(2)]
    optimizer = [np.int64(7), *(random.random(shape, np.float32) for shape in moments)]
    variables |= {f"optimizer/{i}": value for i, value in enumerate(optimizer)}  # type: ignore[misc]
    (directory / "replay").mkdir(parents=True)
    np.savez(directory / "variables.npz", **variables)
    for name, value in (("average", 1), ("best", 2)):
        (directory / name).mkdir()
        policy(value).save(directory / name)
    np.savez(
        directory / "replay" / "000005.npz",
        modules=np.array([b"a/b.c.o", b"a/c.c.o"]),
        lengths=np.array([2, 1]),
        ages=np.array([8, 9]),
        observed=random.random((ROWS, 2 * FEATURES), np.float32),
        logits=random.random((ROWS, 2), np.float32),
        action=np.array([0, 1, 0]),
        alternative=np.array([1, 0, 1]),
        gain=np.array([2.5, -1.0, 0.0]),
    )
    state = {
        "version": 1,
        "iteration": 2,
        "inputs": {"seed": "0"},
        "training": {
            "iteration": 2,
            "trained_s": 1.5,
            "scale": 3.0,
            "best_percent": 0.5,
            "best_iteration": 1,
            "best_interval": None,
            "progress_iteration": 1,
            "history": [[0, 0.0], [1, 0.5]],
            "rewards": [0.0, 0.1],
        },
        "sampler": {"left": [], "random": np.random.default_rng(0).bit_generator.state},
        "shuffle": np.random.default_rng(1).bit_generator.state,
        "quarantine": {},
        "events": {},
    }
    (directory / "state.json").write_text(json.dumps(state))
    write_manifest(directory)
    return variables


@pytest.mark.tf
@pytest.mark.usefixtures("fresh_gin")
def test_learner_resumes_from_the_files_of_an_earlier_version(tmp_path: Path) -> None:
    from components.core.policy.tf.networks import actor_network
    from components.ppo.learners.dqn import DqnLearner, DqnParameters

    variables = write_earlier(tmp_path / "000002")
    earlier = checkpoint.read(tmp_path / "000002")
    learner = DqnLearner(actor_network(FEATURES), 2, DqnParameters(), seed=0)
    learner.restore(earlier.variables)
    learner.shuffle_state = earlier.state["shuffle"]
    learner.replay.restore(earlier.replay)
    for name, value in variables.items():
        np.testing.assert_array_equal(learner.state()[name], value, err_msg=name)
    assert [(segment.number, segment.modules, segment.serials) for segment in learner.segments] == [
        (5, ("a/b.c.o", "a/c.c.o"), (8, 9))
    ]
    assert learner.replay.take(np.arange(ROWS)).gain.tolist() == [2.5, -1.0, 0.0]
    assert (earlier.average.layers[0][0] == 1).all() and (earlier.best.layers[0][0] == 2).all()
    assert TrainingState(**earlier.state["training"]).scale == 3.0


def test_checkpoint_is_written_with_the_same_keys(tmp_path: Path) -> None:
    write_earlier(tmp_path / "000002")
    earlier = checkpoint.read(tmp_path / "000002")
    checkpoint.write(tmp_path / "again", earlier)
    for path in (tmp_path / "000002").rglob("*.npz"):
        with np.load(path) as before, np.load(tmp_path / "again" / path.relative_to(tmp_path / "000002")) as after:
            assert set(before.files) == set(after.files), path
            for name in before.files:
                np.testing.assert_array_equal(before[name], after[name])
