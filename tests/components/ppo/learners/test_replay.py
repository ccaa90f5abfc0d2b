"""The replay buffer: the newest measurements of each module, drawn by index, saved in checkpoints."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from components.ppo.learners.replay import ReplayBuffer, ReplayRows, Segment


def flips(start: int, count: int) -> ReplayRows:
    rows = np.arange(start, start + count)
    return ReplayRows(
        np.stack([rows, -rows], 1).astype(np.float32),
        np.stack([rows, rows], 1).astype(np.float32),
        rows % 2,
        1 - rows % 2,
        rows.astype(np.float64),
    )


def gains(replay: ReplayBuffer) -> list[float]:
    return sorted(replay.take(np.arange(len(replay))).gain.tolist()) if len(replay) else []


def restored(replay: ReplayBuffer) -> ReplayBuffer:
    """Return the buffer after a checkpoint is written and restored."""
    other = ReplayBuffer(2)
    other.restore([Segment.of(segment.number, segment.arrays()) for segment in replay.segments])
    return other


def test_take_keeps_the_order_of_indices() -> None:
    replay = ReplayBuffer(1)
    for start in range(5):
        replay.add([f"m{start}", "same"], [flips(10 * start, 3), flips(100 + 10 * start, 4)])
    whole = replay.take(np.arange(len(replay)))
    rows = np.random.default_rng(0).integers(0, len(replay), 200)
    drawn = replay.take(rows)
    for field in dataclasses.fields(ReplayRows):
        np.testing.assert_array_equal(getattr(drawn, field.name), getattr(whole, field.name)[rows])


def test_snapshot_does_not_grow() -> None:
    replay = ReplayBuffer(1)
    replay.add(["a", "b"], [flips(0, 4), flips(10, 4)])
    snapshot = replay.snapshot()
    held = gains(replay)
    replay.add(["a", "b"], [flips(30, 4), flips(40, 4)])  # nothing of what there was is left
    assert gains(snapshot) == held and not set(held) & set(gains(replay))


def test_mostly_unused_segment_is_merged_and_others_are_unchanged() -> None:
    replay = ReplayBuffer(1)
    replay.add(["a", "b", "c"], [flips(0, 4), flips(10, 4), flips(20, 4)])
    first = replay.segments[0]
    replay.add(["a"], [flips(30, 4)])
    assert replay.segments[0] is first and len(replay.segments) == 2
    replay.add(["b"], [flips(40, 4)])
    assert first not in replay.segments and len(replay.segments) == 2
    assert gains(replay) == [*range(20, 24), *range(30, 34), *range(40, 44)]
    for start in range(50, 90, 10):
        replay.add(["a", "b", "c"], [flips(start, 2), flips(start + 2, 2), flips(start + 4, 2)])
    assert len(replay.segments) == 1 and gains(replay) == [*range(80, 86)]


def test_modules_without_flips_add_nothing() -> None:
    replay = ReplayBuffer(2)
    for _ in range(20):
        replay.add(["empty"], [flips(0, 0)])
    assert len(replay) == 0 and len(replay.segments) == 1 and len(replay.segments[0].modules) == 2
    replay.add([], [])
    assert len(replay.segments) == 1


def test_buffer_is_restored_exactly_from_segments() -> None:
    random = np.random.default_rng(0)
    modules = ["a", "empty", "gr\udcffn", "b", "c", "d"]
    whole = ReplayBuffer(2)
    for i in range(30):
        names = random.permutation(modules)[:3].tolist()
        parts = [flips(1000 * i + 10 * j, 0 if name == "empty" else 3 + j) for j, name in enumerate(names)]
        other = restored(whole)
        for both in (whole, other):
            both.add(names, parts)
        assert [s.number for s in other.segments] == [s.number for s in whole.segments]
        rows = random.integers(0, len(whole), 50)
        np.testing.assert_array_equal(other.take(rows).gain, whole.take(rows).gain)


@pytest.mark.parametrize("measurements", [1, 2, 3])
def test_buffer_equals_a_plain_list(measurements: int) -> None:
    random = np.random.default_rng(1)
    replay, plain = ReplayBuffer(measurements), {}
    for i in range(60):
        names = [f"m{n}" for n in np.flatnonzero(random.random(12) < 0.3)]
        parts = [flips(100 * i + 10 * j, int(random.integers(0, 9))) for j in range(len(names))]
        replay.add(names, parts)
        for name, part in zip(names, parts, strict=True):
            plain[name] = [*plain.get(name, []), part][-measurements:]
        held = sum(map(len, replay.segments))
        assert gains(replay) == sorted(gain for newest in plain.values() for part in newest for gain in part.gain)
        assert held <= 2 * len(replay) + 100
