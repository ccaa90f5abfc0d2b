"""One checkpoint: what is written is read, and damage is found."""

import json

import numpy as np
import pytest

from components.platform.errors import UserError
from components.platform.storage import write_manifest
from components.ppo.checkpointing.checkpoint import read, write
from components.ppo.checkpointing.fingerprint import EarlierCredit
from tests.components.ppo.points import checkpoint, earlier


def test_checkpoint_is_read_back(tmp_path):
    write(tmp_path / "point", checkpoint(10))
    point = read(tmp_path / "point")
    assert point.iteration == 10 and point.state["training"] == {"iteration": 10}
    assert point.variables["step"] == 10
    assert point.average.layers[0][0][0, 0] == 1 and point.best.layers[0][0][0, 0] == 2
    assert point.state["policy"] == checkpoint(10).policy_digest != checkpoint(11).policy_digest


@pytest.mark.parametrize("name", ["variables.npz", "best/weights.npz", "state.json"])
def test_corrupted_byte_is_detected(tmp_path, name):
    write(tmp_path / "point", checkpoint(1))
    path = tmp_path / "point" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="point is damaged"):
        read(tmp_path / "point")


def test_weights_of_another_policy_are_detected(tmp_path):
    """Files that are each whole, but not of one checkpoint."""
    write(tmp_path / "point", checkpoint(1))
    other = {**checkpoint(1).variables, "weights/0": np.zeros(3, np.float32)}
    np.savez(tmp_path / "point" / "variables.npz", **other)
    write_manifest(tmp_path / "point")
    with pytest.raises(UserError, match="weights do not match"):
        read(tmp_path / "point")


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"training": {}})])
def test_invalid_state_is_reported(tmp_path, text):
    write(tmp_path / "point", checkpoint(1))
    (tmp_path / "point" / "state.json").write_text(text)
    write_manifest(tmp_path / "point")
    with pytest.raises(UserError, match="point is damaged"):
        read(tmp_path / "point")


def test_checkpoint_with_earlier_credit_is_not_reported_as_damaged(tmp_path):
    """Its policies have another number of inputs, in a file of another version."""
    directory = tmp_path / "checkpoints" / "000001-0123abcd"
    write(directory, earlier(checkpoint(1)))
    (directory / "best" / "weights.npz").write_bytes(b"of version 1")
    write_manifest(directory)
    with pytest.raises(EarlierCredit, match=f"{tmp_path} was started by an earlier version") as caught:
        read(directory)
    assert "damaged" not in caught.value.problem and "--root-dir" in caught.value.remedy
