"""Evolution strategies climb what perturbed policies return, the same for the same seed."""

import gin
import numpy as np
import pytest
import tensorflow as tf

from components.core.policy.tf import networks
from components.platform.errors import UserError
from components.ppo.learners.es import EsLearner, EsParameters

FEATURES = 4
MODULES = 6


@pytest.fixture(autouse=True)
def small_network(fresh_gin: None) -> None:
    gin.bind_parameter("actor_network.fc_layer_params", (8,))


def learner(seed: int = 0, **parameters) -> EsLearner:
    tf.random.set_seed(seed)
    return EsLearner(networks.actor_network(FEATURES), EsParameters(**parameters), seed)


def returns(learned: EsLearner) -> np.ndarray:
    """float64 [MODULES]: how far the policy prefers what it should; in half of a module's decisions that is 1."""
    observed = np.random.default_rng(5).random((MODULES, 50, 2 * FEATURES)).astype(np.float32)
    logits = networks.logits(learned.actor, observed.reshape(-1, 2 * FEATURES)).numpy().reshape(MODULES, 50, 2)
    should = np.where(observed[..., 0] > 0.5, 1, -1)
    return (np.tanh(logits[..., 1] - logits[..., 0]) * should).mean(axis=1).astype(np.float64)


def iterate(learned: EsLearner, iteration: int, perturbations: int = 8) -> dict[str, float]:
    columns = [returns(learned) for _ in learned.perturb(perturbations)]
    return learned.update(np.stack(columns, axis=1), iteration)


def test_es_increases_returns() -> None:
    learned = learner()
    before = returns(learned).mean()
    for iteration in range(60):
        metrics = iterate(learned, iteration)
    assert returns(learned).mean() > before + 0.2
    assert metrics["learning_rate"] == pytest.approx(0.01 / 1.59) and metrics["gradient_norm"] > 0


def test_perturbations_are_antithetic_and_restored() -> None:
    learned = learner(deviation=0.5)
    own = [weights.numpy() for weights in learned.weights]
    tried = [[weights.numpy() for weights in learned.weights] for _ in learned.perturb(4)]
    for first in (0, 2):
        for there, back, center in zip(tried[first], tried[first + 1], own, strict=True):
            np.testing.assert_allclose(there - center, center - back, atol=1e-6)
            assert np.abs(there - center).max() > 0.1
    for now, center in zip(learned.weights, own, strict=True):
        np.testing.assert_array_equal(now.numpy(), center)


def test_equal_returns_give_no_gradient() -> None:
    learned = learner()
    own = [weights.numpy() for weights in learned.weights]
    for _ in learned.perturb(4):
        pass
    assert learned.update(np.full((3, 4), 0.25), 0)["gradient_norm"] == 0
    for now, before in zip(learned.weights, own, strict=True):
        np.testing.assert_array_equal(now.numpy(), before)


def test_resumed_learner_learns_the_same() -> None:
    whole, first, second = learner(), learner(), learner(seed=9)
    for iteration in range(2):
        iterate(whole, iteration)
    iterate(first, 0)
    second.restore(first.state())
    second.shuffle_state = first.shuffle_state
    iterate(second, 1)
    for name, value in whole.state().items():
        np.testing.assert_array_equal(second.state()[name], value, err_msg=name)


def test_invalid_hyperparameters_are_refused() -> None:
    with pytest.raises(UserError, match=r"EsParameters.deviation is 0"):
        learner(deviation=0)


def test_overflowing_perturbation_is_refused() -> None:
    learned = learner(deviation=1e39)
    with pytest.raises(UserError, match="no longer finite"):
        next(learned.perturb(2))
