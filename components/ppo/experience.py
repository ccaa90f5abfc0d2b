"""Converts rollouts and measured flips to what learners are given: advantages and values in units of a common scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from components.core import problems
from components.core.objectives.size_credit import normalize_advantages
from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import invert_magnitudes
from components.core.policy.tf.observation import logits
from components.ppo.learners.dqn import DqnParameters, margins
from components.ppo.learners.ppo import Experience
from components.ppo.learners.replay import ReplayRows
from components.ppo.rollout import Rollout


def sampled_experience(rollout: Rollout, initial: DensePolicy, scale: float) -> Experience:
    """Return a row for each decision of sampled compiles. initial: the policy that the KL penalty keeps to."""
    prior = logits(initial, rollout.observed)
    advantage = normalize_advantages(rollout.advantage, scale)
    return Experience(rollout.observed, rollout.action, rollout.logits, prior, advantage, np.ones_like(advantage))


def flip_experience(flips: ReplayRows, initial: DensePolicy, scale: float) -> Experience:
    """Return a row for each of the two actions of a flip, weighted by its probability: their exact gradient."""
    gain = normalize_advantages(flips.gain, scale)
    action = np.concatenate([flips.action, flips.alternative])
    both = np.concatenate([flips.logits, flips.logits])
    rows, n = np.arange(len(action)), len(flips)
    logit = both[rows, action].astype(np.float64)
    probability = 1 / (1 + np.exp(np.concatenate([logit[n:] - logit[:n], logit[:n] - logit[n:]])))
    # Twice the probability among the two actions, so that the mean weight is 1.
    weight = (2 * probability).astype(np.float32)
    observed = np.concatenate([flips.observed, flips.observed])
    prior = logits(initial, observed)
    return Experience(observed, action, both, prior, np.concatenate([-gain, gain]) / 2, weight)


def flip_returns(
    flips: ReplayRows, initial: DensePolicy, scale: float, parameters: DqnParameters, problem: str
) -> NDArray[np.float32]:
    """Return float32 [N], the value of each flip, less a margin where it deviates from the initial policy."""
    initial_action = logits(initial, flips.observed).argmax(1)
    deviates = (flips.action == initial_action).astype(np.float32) - (flips.alternative == initial_action)
    return normalize_advantages(flips.gain, scale) - margins(parameters, _repeats(flips, initial, problem)) * deviates


def _repeats(flips: ReplayRows, policy: DensePolicy, problem: str) -> NDArray[np.float64]:
    """Return float64 [N], how many similar decisions each flip's decision may have, 1 if unknown."""
    names = [feature.name for feature in policy.network_features]
    feature = problems.get(problem).training.repeats
    if feature not in names:
        return np.ones(len(flips))
    return invert_magnitudes(flips.observed[:, len(names) + names.index(feature)])
