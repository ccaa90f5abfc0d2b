"""Cloning learns what there is to learn, the same for the same seed."""

import dataclasses

import numpy as np
import pytest

from components.core.policy.feature_encoding import inputs_per_feature
from components.warmstart.clone import agreement, clone
from components.warmstart.config import WarmstartConfig
from components.warmstart.data import load_decisions
from tests.components.warmstart.conftest import FEATURES, TENSORS

pytestmark = pytest.mark.usefixtures("fresh_gin")


@pytest.fixture(scope="module")
def setting(inputs, tmp_path_factory):
    config = WarmstartConfig(**inputs, output=tmp_path_factory.mktemp("unused"), epochs=40, batch_size=256)
    names = {spec.name for spec in FEATURES}
    return config, load_decisions(config.trace, config.vocab, config.heldout_fraction, config.seed, names)


def entropy(policy, q):
    logits = policy.logits_of_inputs(q)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return float(-(p * np.log(np.maximum(p, 1e-30))).sum(axis=1).mean())


def test_rule_of_two_features_is_learned_and_generalizes(setting):
    config, decisions = setting
    losses = []
    cloned = clone(config, decisions, lambda number, loss, policy: losses.append((number, loss)))
    heldout = decisions.heldout
    assert agreement(cloned.policy, decisions.observed[heldout], decisions.action[heldout]) > 0.97
    assert [number for number, _ in losses] == list(range(1, 41))
    assert losses[-1][1] == cloned.loss < losses[0][1] / 3
    steps = int((~heldout).sum()) // 256
    assert cloned.decisions_per_s == pytest.approx(40 * steps * 256 / cloned.training_s)


def test_seed_determines_the_policy(setting):
    config, decisions = setting
    short = dataclasses.replace(config, epochs=2)
    first, second = (clone(short, decisions).policy for _ in range(2))
    other = clone(dataclasses.replace(short, seed=1), decisions).policy
    np.testing.assert_allclose(first.layers[0][0], second.layers[0][0], atol=1e-6)
    assert np.abs(first.layers[0][0] - other.layers[0][0]).max() > 0.01


def test_entropy_weight_raises_entropy(setting):
    config, decisions = setting
    config = dataclasses.replace(config, epochs=8)
    plain = clone(config, decisions).policy
    unsure = clone(dataclasses.replace(config, entropy_weight=0.3), decisions).policy
    assert entropy(unsure, decisions.observed) > 1.2 * entropy(plain, decisions.observed)


def test_temperature_divides_the_logits(setting):
    config, decisions = setting
    config = dataclasses.replace(config, epochs=1)
    q = decisions.observed[:50]
    plain = clone(config, decisions).policy.logits_of_inputs(q)
    warm = clone(dataclasses.replace(config, temperature=2.0), decisions).policy.logits_of_inputs(q)
    np.testing.assert_allclose(warm * 2, plain, atol=1e-4)


def test_few_decisions_are_one_batch(setting):
    config, decisions = setting
    assert clone(dataclasses.replace(config, epochs=1, batch_size=100_000), decisions).decisions_per_s > 0


def test_single_step_changes_the_weights(setting, monkeypatch):
    config, decisions = setting
    monkeypatch.setattr("components.warmstart.clone.MIN_BATCH", 100_000)
    config = dataclasses.replace(config, epochs=1, batch_size=100_000)
    tiny_rate = clone(dataclasses.replace(config, learning_rate=1e-30), decisions).policy.layers
    trained = clone(config, decisions).policy.layers
    assert not np.array_equal(trained[-1][0], tiny_rate[-1][0]) and np.isfinite(trained[-1][0]).all()


def test_constant_feature_gets_zero_weight(setting):
    config, decisions = setting
    policy = clone(dataclasses.replace(config, epochs=1), decisions).policy
    rows = policy.layers[0][0].reshape(inputs_per_feature(masked=False), len(decisions.features), -1)
    for index, feature in enumerate(decisions.features):
        assert np.any(rows[:, index]) == (feature.name != "always_zero"), feature.name


def test_tensors_get_zero_weights_until_reinforcement_learning(setting):
    config, _ = setting
    decisions = load_decisions(config.trace, config.vocab, config.heldout_fraction, config.seed)
    assert decisions.features[-2:] == TENSORS and decisions.observed.shape[1] == 2 * len(FEATURES) + 6
    policy = clone(dataclasses.replace(config, epochs=1), decisions).policy
    assert np.any(policy.layers[0][0][:-6]) and not np.any(policy.layers[0][0][-6:])
