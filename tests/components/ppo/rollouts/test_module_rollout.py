"""The rollout of a module, as workers return it."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pytest

from components.ppo.module_rollout import ModuleRollout


def test_cluster_node_needs_no_trainer_packages() -> None:
    """It has no TensorFlow, and no pyarrow: docker/requirements/cluster.txt."""
    modules = (
        "components.ppo.credit.measured_flips, components.ppo.module_rollout, components.platform.workers.ray_worker"
    )
    code = f"import sys, {modules}\n"
    code += "print({'tensorflow', 'pyarrow', 'gin'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def sampled(decisions: int) -> ModuleRollout:
    """Four samples of a module whose callsites are the same, with actions and advantages of their own."""
    random = np.random.default_rng(1)
    asked = np.tile(random.integers(0, 1000, (decisions, 36)).astype(np.float32) / np.float32(1000), (4, 1))
    logits = np.tile(random.normal(size=(decisions, 2)).astype(np.float32), (4, 1))
    action, advantage = random.integers(0, 2, 4 * decisions), random.normal(size=4 * decisions)
    outcomes = tuple({"": size} for size in (5, 6, 7, 8))
    return ModuleRollout("a/b.c.o", outcomes, asked, action, logits, advantage)


@pytest.mark.parametrize("decisions", [0, 1, 500])
def test_pickled_rollout_is_restored_exactly(decisions: int) -> None:
    before = sampled(decisions)
    if decisions:
        before.logits[0] = -0.0, np.nan  # bit by bit
    after = pickle.loads(pickle.dumps(before))
    for field in dataclasses.fields(ModuleRollout):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if isinstance(old, np.ndarray):
            assert (new.dtype, new.shape, new.tobytes()) == (old.dtype, old.shape, old.tobytes())
        else:
            assert new == old


def test_multidimensional_observations_are_pickled() -> None:
    flat = sampled(50)
    before = dataclasses.replace(flat, observed=flat.observed.reshape(200, 4, 9))
    after = pickle.loads(pickle.dumps(before))
    assert after.observed.tobytes() == before.observed.tobytes() and after.observed.shape == (200, 4, 9)
    assert after.logits.tobytes() == before.logits.tobytes()


def test_duplicate_observations_are_pickled_once() -> None:
    assert len(pickle.dumps(sampled(500))) < 0.3 * sum(
        value.nbytes for value in vars(sampled(500)).values() if isinstance(value, np.ndarray)
    )
