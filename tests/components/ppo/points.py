"""Checkpoints that no training was needed for."""

from dataclasses import replace

import numpy as np

from components.core.formats.features import FeatureSpec
from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import inputs_per_feature
from components.ppo.checkpointing.checkpoint import Checkpoint


def policy(value):
    layer = (np.full((inputs_per_feature(masked=False), 2), value, np.float32), np.zeros(2, np.float32))
    return DensePolicy("inlining", (FeatureSpec("f", "int64"),), {"f": np.arange(4.0)}, (layer,))


def checkpoint(iteration):
    variables = {"step": np.int64(iteration), "weights/0": np.arange(3, dtype=np.float32) + iteration}
    return Checkpoint(iteration, variables, policy(1), policy(2), {"training": {"iteration": iteration}})


def earlier(point):
    """The same as a version wrote it that had --credit."""
    return replace(point, state={**point.state, "inputs": {"credit": "function"}})
