"""Binds the hyperparameters of a training with gin, and makes its learner."""

from __future__ import annotations

from pathlib import Path

import gin
import tensorflow as tf

from components.core import problems
from components.core.policy.dense import DensePolicy
from components.core.policy.tf import networks
from components.ppo.config import TrainingConfig
from components.ppo.learners.dqn import DqnLearner, DqnParameters
from components.ppo.learners.es import EsLearner, EsParameters
from components.ppo.learners.learner import Learner, require_number
from components.ppo.learners.ppo import PpoLearner, PpoParameters

GIN_DIRECTORY = Path(__file__).parents[1] / "gin"


def configure(config: TrainingConfig) -> None:
    """Bind the problem's and the user's gin hyperparameters; raise UserError for an unknown problem or a gin error."""
    problem = problems.get(config.problem).name
    files = [GIN_DIRECTORY / f"{problem}.gin"]
    finetuning = GIN_DIRECTORY / f"{problem}_finetuning.gin"
    if finetuning.is_file() and config.starts_from_trained:
        files.append(finetuning)
    networks.configure(problem, config.gin_bindings, (*files, *config.gin_files))


def make_learner(config: TrainingConfig, scale: networks.InputScale, initial: DensePolicy) -> Learner:
    """Return the learner that a training is configured for, with the weights of `initial`."""
    policy = problems.get(config.problem).policy
    tf.random.set_seed(config.seed)
    actor = networks.actor_network(
        len(initial.network_features), policy.num_actions, masked=policy.mask is not None, scale=scale
    )
    learner: Learner
    if config.algorithm == "dqn":
        learner = DqnLearner(actor, policy.num_actions, DqnParameters(), config.seed)
    elif config.algorithm == "es":
        learner = EsLearner(actor, EsParameters(), config.seed, config.samples)
    else:
        measures_flips = config.credit_assignment == "counterfactual"
        learner = PpoLearner(actor, policy.num_actions, PpoParameters(), config.seed, measures_flips)
    learner.start_from(initial, config.ema_decay)
    return learner


def read_initial_entropy() -> float:
    """Return the minimum mean entropy of the initial policy, which is a parameter of PPO and applies to every learner.

    Raises:
        UserError: it is not a number of at least 0.
    """
    name = "initial_entropy"
    entropy = gin.get_bindings(PpoParameters).get(name, getattr(PpoParameters, name))
    require_number(f"PpoParameters.{name}", entropy)
    return float(entropy)
