"""A trainer, set up as by the PPO step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import tensorflow as tf

from components.platform.storage.directory import make_directory
from components.platform.storage.shared_state.root_lease import RootLease
from components.ppo.checkpointing.checkpoint_manager import CheckpointManager
from components.ppo.checkpointing.fingerprint import training_fingerprint
from components.ppo.config import TrainingConfig
from components.ppo.learners.factory import configure
from components.ppo.train import Trainer
from components.ppo.training_data import load_training_data
from tests.bench.context import BenchContext

WORKERS = 2
VALIDATE_NEVER = 10**9


def training_config(ctx: BenchContext, iterations: int, **options: Any) -> TrainingConfig:
    """Return the configuration of a training of the benchmark's run, by WORKERS local workers."""
    inputs = (ctx.corpus, ctx.training, ctx.trace, ctx.warmstart)
    outputs = (ctx.scratch / "root", ctx.scratch / "policy")
    return TrainingConfig(*inputs, *outputs, iterations=iterations, workers=f"local:{WORKERS}", **options)


def timed_config(ctx: BenchContext, warm_up: int) -> TrainingConfig:
    """Return the configuration of a training whose iterations are timed after the first `warm_up`: none validates."""
    sizes = {"modules": ctx.modules, "samples": ctx.samples}
    return training_config(ctx, warm_up + ctx.repeats, **sizes, validate_every=VALIDATE_NEVER)


@contextmanager
def training(config: TrainingConfig) -> Iterator[Trainer]:
    """Yield a trainer in `config.root_dir`; only one per process, because it configures gin and TensorFlow."""
    tf.config.experimental.enable_op_determinism()
    configure(config)
    make_directory(config.root_dir)
    with (
        RootLease(config.root_dir, "training") as fence,
        closing(
            Trainer(
                config,
                training_fingerprint(config),
                CheckpointManager(fence, config.max_checkpoints),
                load_training_data(config),
            )
        ) as it,
    ):
        yield it
