"""Runs a training and publishes what came of it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gin
import tensorflow as tf

from components.console import UserError, say
from components.formats.policy import PolicyInfo
from components.policy.exhausted import exhaustion_explained
from components.policy.export import export_policy
from components.ppo.config import PpoConfig
from components.ppo.train import Trained, Trainer
from components.storage import publish
from components.storage.directory import make_directory

_REPORTED = ("modules", "samples", "credit", "module_weight", "validate_every", "average_decay", "seed")
"""Fields of the config that say how it was trained, for the policy's card."""


def run(config: PpoConfig) -> None:
    """Trains (or goes on training) in `config.root_dir` and publishes the best policy to `config.output`."""
    # The same rewards twice needs the same sums twice, whatever threads did them.
    tf.config.experimental.enable_op_determinism()
    make_directory(config.root_dir)
    with _alone_in(config.root_dir), exhaustion_explained(config.root_dir):
        trainer = Trainer(config)
        try:
            trainer.resume()
            trained = trainer.run()
        finally:
            trainer.close()
        _publish(config, trainer, trained)


@contextmanager
def _alone_in(root: Path) -> Iterator[None]:
    """Locks the root directory; the lock goes with the process, however it ends."""
    with open(root / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another training is running in {root}", "wait until it has ended, or use another --root-dir"
            ) from None
        yield


def _publish(config: PpoConfig, trainer: Trainer, trained: Trained) -> None:
    state = trained.state
    report = {
        "iterations": state.iteration,
        "trained_s": state.trained_s,
        "best_iteration": state.best_iteration,
        "validation_reduction_percent": state.best_percent,
        "validation_history": state.history,
        "mean_rewards": state.rewards,
        "quarantine": trainer.quarantine.to_json(),
        "processors": len(os.sched_getaffinity(0)),
        "hyperparameters": {
            "step": {name: getattr(config, name) for name in _REPORTED},
            "gin": gin.operative_config_str(),
        },
    }
    with publish(config.output) as partial:
        export_policy(trained.policy, partial, trainer.clang, _origin(trainer, trained))
        (partial / "report.json").write_text(json.dumps(report, indent=1) + "\n")
        # The policy brings its history along, so that an evaluation elsewhere can draw the reward over time.
        shutil.copytree(config.root_dir / "tensorboard", partial / "tensorboard")
    change = "smaller" if state.best_percent >= 0 else "larger"
    say(
        f"best policy: iteration {state.best_iteration} of {state.iteration}, {abs(state.best_percent):.2f}% {change} "
        f"than the heuristic on the validation modules"
    )


def _origin(trainer: Trainer, trained: Trained) -> PolicyInfo:
    policy, state = trained.policy, trained.state
    return PolicyInfo(
        policy.problem,
        policy.features,
        policy.num_actions,
        trained_by="ppo",
        vocab_digest=trainer.vocab_digest,
        trace_digest=trainer.inputs["trace"],
        corpus_digest=trainer.inputs["corpus"],
        toolchain_digest=trainer.inputs["toolchain"],
        llvm_version=trainer.toolchain.llvm_version,
        metrics={
            "validation_reduction_percent": state.best_percent,
            "best_iteration": float(state.best_iteration),
            "iterations": float(state.iteration),
            "trained_s": state.trained_s,
        },
    )
