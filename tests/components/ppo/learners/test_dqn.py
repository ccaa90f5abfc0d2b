"""DQN learns the difference of two actions' returns, the same for the same seed."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest
import tensorflow as tf

from components.core.counterfactual.influence import FEW_CALLS
from components.core.policy.tf import networks
from components.platform.errors import UserError
from components.ppo.learners.dqn import DqnLearner, DqnParameters, compute_margins
from components.ppo.learners.replay import ReplayBuffer, ReplayRows

pytestmark = pytest.mark.usefixtures("fresh_gin")

FEATURES = 4


def measured(count: int = 2000, seed: int = 0) -> tuple[ReplayRows, np.ndarray]:
    """Flips of which action 1 is worth the first quantile less one half, whichever of the two the base took."""
    random = np.random.default_rng(seed)
    observed = random.random((count, 2 * FEATURES)).astype(np.float32)
    action = random.integers(0, 2, count)
    inlining = 4 * (observed[:, 0] - 0.5)
    gain = np.where(action == 1, -inlining, inlining).astype(np.float64)
    return ReplayRows(observed, np.zeros((count, 2), np.float32), action, 1 - action, gain), inlining


def gain_itself(flips: ReplayRows) -> np.ndarray:
    return flips.gain.astype(np.float32)


def learner(seed: int = 0, **parameters) -> DqnLearner:
    tf.random.set_seed(seed)
    return DqnLearner(networks.actor_network(FEATURES), 2, DqnParameters(**parameters), seed)


def test_values_predict_the_better_action() -> None:
    flips, _ = measured()
    learned = learner(num_epochs=40.0)
    metrics = learned.fit(flips, gain_itself, (0, 0))
    other, truth = measured(500, seed=1)
    values = networks.logits(learned.actor, other.observed).numpy()
    error = np.mean((values[:, 1] - values[:, 0] - truth) ** 2)
    assert error < 0.05 * np.var(truth)
    assert metrics["explained_variance"] > 0.5 and metrics["value_loss"] > 0


def test_fit_depends_only_on_its_number_and_initial_weights() -> None:
    flips, _ = measured()
    one, other = learner(), learner()
    first = one.state()
    one.fit(flips, gain_itself, (1, 0))
    other.fit(flips, gain_itself, (3, 0))
    assert any(not np.array_equal(other.state()[name], value) for name, value in one.state().items())
    other.restore(first)
    other.fit(flips, gain_itself, (1, 0))
    for name, value in one.state().items():
        np.testing.assert_array_equal(other.state()[name], value, err_msg=name)


def test_fit_to_buffer_equals_fit_to_its_flips() -> None:
    flips, _ = measured()
    replay = ReplayBuffer(2)
    parts = [flips.take(rows) for rows in np.array_split(np.arange(len(flips)), 7)]
    replay.add([f"m{i}" for i in range(4)], parts[:4])
    replay.add([f"m{i}" for i in range(4, 7)], parts[4:])
    whole, buffered = learner(), learner()
    assert whole.fit(flips, gain_itself, (0, 0)) == buffered.fit(replay, gain_itself, (0, 0))
    for name, value in whole.state().items():
        np.testing.assert_array_equal(buffered.state()[name], value, err_msg=name)


def test_fit_has_at_most_max_steps() -> None:
    flips, _ = measured()
    few, bounded = learner(), learner(max_steps=5)
    few.fit(flips, gain_itself, (0, 0))
    bounded.fit(flips, gain_itself, (0, 0))
    assert few.state()["step"] == round(10 * 2000 / 256) and bounded.state()["step"] == 5


def test_margin_grows_with_repeats() -> None:
    uses = np.array([0.0, 1.0, FEW_CALLS, FEW_CALLS * np.e, FEW_CALLS * np.e**2])
    margins = compute_margins(DqnParameters(margin=0.1, repeated_margin=3.0), uses)
    np.testing.assert_allclose(margins, [0.1, 0.1, 0.1, 0.4, 0.7], rtol=1e-6)
    assert margins.dtype == np.float32
    np.testing.assert_allclose(compute_margins(DqnParameters(margin=0.1, repeated_margin=0.0), uses), np.full(5, 0.1))


def test_cancelled_fit_ends_at_its_next_step() -> None:
    flips, _ = measured()
    cancelled = threading.Event()
    learned = learner()

    def give_up(drawn: ReplayRows) -> np.ndarray:
        cancelled.set()
        return gain_itself(drawn)

    with pytest.raises(CancelledError):
        learned.fit(flips, give_up, (0, 0), cancelled)
    assert learned.state()["step"] == 1


def test_few_flips_are_one_minibatch() -> None:
    flips, _ = measured(3)
    assert np.isfinite(learner().fit(flips, gain_itself, (0, 0))["value_loss"])


@pytest.mark.parametrize(
    "parameters",
    [{"learning_rate": float("nan")}, {"max_steps": 0}, {"minibatch_size": 256.5}, {"num_epochs": -1.0}],
)
def test_invalid_hyperparameters_are_refused(parameters) -> None:
    with pytest.raises(UserError, match=f"DqnParameters.{next(iter(parameters))}"):
        learner(**parameters)
