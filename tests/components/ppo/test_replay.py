"""What is learned from again survives a checkpoint."""

from __future__ import annotations

import numpy as np

from components.ppo.replay import Flips, ReplayBuffer


def flips(start: int, count: int) -> Flips:
    rows = np.arange(start, start + count)
    return Flips(
        np.stack([rows, -rows], 1).astype(np.float32), np.stack([rows, rows], 1).astype(np.float32),
        rows % 2, 1 - rows % 2, rows.astype(np.float64),
    )  # fmt: skip


def test_only_the_newest_measurements_of_a_module_are_kept() -> None:
    replay = ReplayBuffer(2)
    assert replay.all() is None and replay.state() == {}
    for start, module in enumerate(["a", "b", "a", "a"]):
        replay.add(module, flips(10 * start, 2))
    found = replay.all()
    assert found is not None
    np.testing.assert_array_equal(found.gain, [10, 11, 20, 21, 30, 31])
    np.testing.assert_array_equal(found.observed[:, 1], -found.gain)


def test_a_checkpoint_s_arrays_restore_it() -> None:
    replay = ReplayBuffer(2)
    for start, module in enumerate(["a", "empty", "gr\udcffn", "a"]):
        replay.add(module, flips(10 * start, 0 if module == "empty" else 3))
    again = ReplayBuffer(2)
    again.restore(replay.state())
    for name, array in replay.state().items():
        np.testing.assert_array_equal(again.state()[name], array)
    for both in (replay, again):
        both.add("a", flips(50, 1))
    np.testing.assert_array_equal(replay.all().gain, again.all().gain)
    assert 0 not in again.all().gain
