"""DQN learns the difference of two actions' returns, the same for the same seed."""

from __future__ import annotations

import gin
import numpy as np
import pytest

from components.console import UserError
from components.policy import networks
from components.ppo.dqn import DqnLearner, DqnParameters
from components.ppo.replay import Flips

FEATURES = 4


@pytest.fixture(autouse=True)
def fresh_gin():
    gin.clear_config()
    yield
    gin.clear_config()


def measured(count: int = 2000, seed: int = 0) -> tuple[Flips, np.ndarray]:
    """Flips of which action 1 is worth the first quantile less one half, whichever of the two the base took."""
    random = np.random.default_rng(seed)
    observed = random.random((count, 2 * FEATURES)).astype(np.float32)
    action = random.integers(0, 2, count)
    inlining = 4 * (observed[:, 0] - 0.5)
    gain = np.where(action == 1, -inlining, inlining).astype(np.float64)
    return Flips(observed, np.zeros((count, 2), np.float32), action, 1 - action, gain), inlining


def learner(seed: int = 0, **parameters) -> DqnLearner:
    return DqnLearner(FEATURES, 2, DqnParameters(**parameters), seed)


def test_values_tell_which_action_saves() -> None:
    flips, _ = measured()
    learned = learner(replays=40.0)
    metrics = learned.update(flips, flips.gain.astype(np.float32), len(flips), 0)
    other, truth = measured(500, seed=1)
    values = networks.logits(learned.actor, other.observed).numpy()
    error = np.mean((values[:, 1] - values[:, 0] - truth) ** 2)
    assert error < 0.05 * np.var(truth)
    assert metrics["explained_variance"] > 0.5 and metrics["value_loss"] > 0
    assert metrics["learning_rate"] == DqnParameters().learning_rate


def test_a_training_that_goes_on_learns_the_same() -> None:
    flips, _ = measured()
    whole, first, second = learner(), learner(), learner(seed=9)
    advantage = flips.gain.astype(np.float32)
    for iteration in range(2):
        whole.update(flips, advantage, 500, iteration)
    first.update(flips, advantage, 500, 0)
    second.restore(first.state())
    second.shuffle_state = first.shuffle_state
    second.update(flips, advantage, 500, 1)
    for name, value in whole.state().items():
        np.testing.assert_array_equal(second.state()[name], value, err_msg=name)


def test_few_flips_are_a_batch() -> None:
    flips, _ = measured(3)
    assert np.isfinite(learner().update(flips, flips.gain.astype(np.float32), 3, 0)["value_loss"])


def test_a_state_of_another_network_is_refused() -> None:
    other = DqnLearner(FEATURES + 1, 2, DqnParameters(), 0)
    with pytest.raises(UserError, match="another network"):
        learner().restore(other.state())


@pytest.mark.parametrize(
    "parameters",
    [{"learning_rate": float("nan")}, {"minibatch_size": 0}, {"minibatch_size": 256.5}, {"replays": -1.0}],
)
def test_impossible_hyperparameters_are_named(parameters) -> None:
    with pytest.raises(UserError, match=f"DqnParameters.{next(iter(parameters))}"):
        learner(**parameters)
