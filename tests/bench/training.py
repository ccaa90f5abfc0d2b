"""A training as the PPO step begins one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import tensorflow as tf

from components.ppo.begun import begun_with
from components.ppo.config import PpoConfig
from components.ppo.fence import Fence
from components.ppo.store import Store
from components.ppo.train import Trainer, configure
from components.storage.directory import make_directory


@contextmanager
def training(config: PpoConfig) -> Iterator[Trainer]:
    """A trainer in `config.root_dir`, closed at the end. One in a process: it sets gin and TensorFlow up."""
    tf.config.experimental.enable_op_determinism()
    configure(config)
    make_directory(config.root_dir)
    with Fence(config.root_dir) as fence, closing(Trainer(config, begun_with(config), Store(fence, config.keep))) as it:
        yield it
