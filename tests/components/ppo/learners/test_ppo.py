"""The learner, on a bandit with a known best action."""

from dataclasses import replace

import numpy as np
import pytest

from components.platform.errors import UserError

FEATURES = 4


def experience(learner, rng, decisions=4096):
    """Decisions sampled from the learner's policy; inlining pays where the first quantile is above a half.

    The policy that all began with tossed a coin.
    """
    from components.core.policy.tf import networks
    from components.ppo.learners.ppo import Experience

    observed = rng.random((decisions, 2 * FEATURES), np.float32)  # quantiles, then magnitudes
    logits = networks.logits(learner.actor, observed).numpy()
    inline = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    action = (rng.random(decisions) < inline).astype(np.int64)
    advantage = np.where(action == (observed[:, 0] > 0.5), 1, -1).astype(np.float32)
    return Experience(observed, action, logits, np.zeros_like(logits), advantage, np.ones_like(advantage))


def make_learner(seed=0, **parameters):
    import tensorflow as tf

    from components.core.policy.tf.networks import actor_network
    from components.ppo.learners.ppo import PpoLearner, PpoParameters

    tf.random.set_seed(seed)
    settings = PpoParameters(**{"learning_rate": 1e-3, "minibatch_size": 512, **parameters})
    return PpoLearner(actor_network(FEATURES), 2, settings, seed)


def test_policy_improves_and_stays_near_the_old_one():
    learner, rng = make_learner(), np.random.default_rng(0)
    first = experience(learner, rng)
    metrics = learner.update(first)
    assert 0 < metrics["kl"] < 0.2
    for _ in range(4):
        learner.update(experience(learner, rng))
    assert first.advantage.mean() < 0.3
    assert experience(learner, rng).advantage.mean() > 0.6


def test_restored_learner_continues_exactly():
    one, two = make_learner(), make_learner(seed=7)
    data = experience(one, np.random.default_rng(1))
    one.update(data)
    two.restore(one.state())
    two.shuffle_state = one.shuffle_state
    assert one.update(data) == two.update(data)
    for name, value in one.state().items():
        np.testing.assert_array_equal(value, two.state()[name])


def test_state_of_another_network_is_refused():
    learner = make_learner()
    state = learner.state()
    state["weights/0"] = np.zeros((2, 2), np.float32)
    with pytest.raises(UserError, match="another network"):
        learner.restore(state)


def test_kl_penalty_decays():
    entropy = {}
    for iteration in (0, 20):
        # The same rate in both: 1e-3 by then.
        learner = make_learner(learning_rate=1e-3 * (1 + iteration), kl_coef=2.0, decay_iterations=1)
        rng = np.random.default_rng(4)
        for _ in range(8):
            entropy[iteration] = learner.update(experience(learner, rng), iteration)["entropy"]
    assert entropy[20] < 0.9 * entropy[0]


@pytest.mark.parametrize(
    "parameters",
    [{"decay_iterations": 0}, {"num_epochs": 0}, {"minibatch_size": 0}, {"clip_epsilon": -0.1}, {"kl_coef": "x"}],
)
def test_invalid_parameters_are_refused(parameters):
    with pytest.raises(UserError, match=f"PpoParameters.{next(iter(parameters))} is"):
        make_learner(**parameters)


def test_divergence_is_reported():
    learner = make_learner(learning_rate=1e30)
    data = experience(learner, np.random.default_rng(3))
    with pytest.raises(UserError, match="diverged"):
        for _ in range(3):
            learner.update(data)


def test_target_kl_ends_updates():
    far, near = make_learner(num_epochs=6), make_learner(num_epochs=6, target_kl=1e-4)
    data = experience(far, np.random.default_rng(2))
    assert near.update(data)["kl"] < far.update(data)["kl"]


def test_weights_scale_the_loss():
    """Decisions of weight 0 do not change the update."""
    data = experience(make_learner(), np.random.default_rng(5), decisions=512)
    is_first_half = np.arange(512) < 256
    without = replace(data, weight=is_first_half.astype(np.float32) * 2)
    opposed = replace(without, advantage=np.where(is_first_half, data.advantage, -data.advantage))
    learned = []
    for decisions in (data, without, opposed):
        learner = make_learner()
        learner.update(decisions)
        learned.append(learner.state()["weights/0"])
    np.testing.assert_array_equal(learned[1], learned[2])
    assert np.abs(learned[0] - learned[1]).max() > 0
