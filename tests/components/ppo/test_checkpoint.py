"""Checkpoints: whole or not there."""

import numpy as np
import pytest

from components.console import UserError
from components.formats.features import FeatureSpec
from components.policy.dense import DensePolicy
from components.ppo.checkpoint import Checkpoint, latest, require_same_inputs, save


def policy(value):
    layer = (np.full((3, 2), value, np.float32), np.zeros(2, np.float32))
    return DensePolicy("inlining", (FeatureSpec("f", "int64"),), {"f": np.arange(4.0)}, (layer,))


def checkpoint(iteration):
    variables = {"step": np.int64(iteration), "weights/0": np.arange(3, dtype=np.float32)}
    return Checkpoint(iteration, variables, policy(1), policy(2), {"training": {"iteration": iteration}})


def test_newest_comes_back_and_old_ones_go(tmp_path):
    for iteration in (1, 2, 3, 10):
        save(tmp_path, checkpoint(iteration), keep=2)
    found = latest(tmp_path)
    assert found.iteration == 10 and found.state["training"] == {"iteration": 10}
    assert found.variables["step"] == 10
    assert found.average.layers[0][0][0, 0] == 1 and found.best.layers[0][0][0, 0] == 2
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["000003", "000010"]


def test_unfinished_checkpoint_does_not_exist(tmp_path):
    save(tmp_path, checkpoint(1), keep=2)
    save(tmp_path, checkpoint(2), keep=2)
    (tmp_path / "checkpoints" / "000002" / "manifest.json").unlink()
    assert latest(tmp_path).iteration == 1


def test_damaged_checkpoint_may_be_moved_aside(tmp_path):
    save(tmp_path, checkpoint(1), keep=2)
    save(tmp_path, checkpoint(2), keep=2)
    (tmp_path / "checkpoints" / "000002").rename(tmp_path / "checkpoints" / "000002.bad")
    assert latest(tmp_path).iteration == 1


def test_newest_is_so_by_number(tmp_path):
    for iteration in (999_999, 1_000_000):
        save(tmp_path, checkpoint(iteration), keep=2)
    assert latest(tmp_path).iteration == 1_000_000


def test_training_goes_on_only_with_what_it_was_begun_with(tmp_path):
    begun = {"corpus": "a", "trace": "b", "seed": "1"}
    require_same_inputs(tmp_path, begun, begun)
    with pytest.raises(UserError, match="another corpus and another seed"):
        require_same_inputs(tmp_path, begun, {"corpus": "x", "trace": "b", "seed": "2"})


def test_no_checkpoint_at_all(tmp_path):
    assert latest(tmp_path) is None


def test_corrupted_byte_is_found_and_the_remedy_named(tmp_path):
    save(tmp_path, checkpoint(1), keep=2)
    path = tmp_path / "checkpoints" / "000001" / "variables.npz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="000001 is damaged") as caught:
        latest(tmp_path)
    assert "remove" in caught.value.remedy
