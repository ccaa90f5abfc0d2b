"""Cost of writing a checkpoint to the disk at once, so that it survives a loss of power."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any
from unittest import mock

from components.platform.storage.manifest import MANIFEST
from components.ppo.checkpointing import checkpoint
from tests.bench.context import BenchContext

PUBLICATIONS = 10
"""Checkpoints of each timing: one takes less time than the disk's delays differ."""
FLUSHES = ("flush_files", "flush")
"""Functions that publications flush files with."""


def measure(ctx: BenchContext) -> dict[str, float]:
    """checkpoint_over_unflushed: time to publish the newest checkpoint of the run, whose last segment of flips is new,
    divided by the time without flushes. Directories of both are on one disk, which $TMPDIR chooses."""
    newest = max(ctx.run.glob(f"ppo/**/checkpoints/*/{MANIFEST}")).parent
    state = checkpoint.read(newest)
    before = ctx.scratch / "before"
    checkpoint.write(before, replace(state, replay=state.replay[:-1]))
    numbers = itertools.count()

    def publish() -> None:
        for _ in range(PUBLICATIONS):
            checkpoint.write(ctx.scratch / f"{next(numbers):06d}", state, before)

    def publish_unflushed() -> None:
        nothing: dict[str, Any] = dict.fromkeys(FLUSHES, lambda _path: None)
        with mock.patch.multiple("components.platform.storage.publish", **nothing):
            publish()

    publish()
    return {"checkpoint_over_unflushed": ctx.ratio(publish, publish_unflushed)}
