"""Runs a training and publishes what came of it."""

from __future__ import annotations

import json
import shutil

import tensorflow as tf

from components.console import say
from components.ppo.config import PpoConfig
from components.ppo.train import Trained, Trainer
from components.storage import publish


def run(config: PpoConfig) -> None:
    """Trains (or goes on training) in `config.root_dir` and publishes the best policy to `config.output`."""
    # The same rewards twice needs the same sums twice, whatever threads did them.
    tf.config.experimental.enable_op_determinism()
    config.root_dir.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(config)
    try:
        trainer.resume()
        trained = trainer.run()
    finally:
        trainer.close()
    _publish(config, trainer, trained)


def _publish(config: PpoConfig, trainer: Trainer, trained: Trained) -> None:
    from components.policy.export import export_policy

    state = trained.state
    report = {
        "iterations": state.iteration,
        "trained_s": state.trained_s,
        "best_iteration": state.best_iteration,
        "validation_reduction_percent": state.best_percent,
        "validation_history": state.history,
        "mean_rewards": state.rewards,
        "quarantine": trainer.quarantine.to_json(),
    }
    with publish(config.output) as partial:
        export_policy(trained.policy, partial, trainer.clang)
        (partial / "report.json").write_text(json.dumps(report, indent=1) + "\n")
        # The policy brings its history along, so that an evaluation elsewhere can draw the reward over time.
        shutil.copytree(config.root_dir / "tensorboard", partial / "tensorboard")
    say(
        f"best policy: iteration {state.best_iteration} of {state.iteration}, "
        f"{state.best_percent:.2f}% smaller than the heuristic on the validation modules"
    )
