"""Runs a training and publishes its policy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import gin
import tensorflow as tf

from components.core.formats.policy import PolicyInfo
from components.core.policy.export import export_policy
from components.core.policy.tf.tf_errors import explain_resource_exhausted
from components.platform.console import say
from components.platform.console.interrupts import continues_when_rerun
from components.platform.console.shutdown_deadline import shutdown_deadline
from components.platform.errors import UserError
from components.platform.processes.cgroup import available_processors
from components.platform.storage import publish
from components.platform.storage.directory import make_directory, remove_if_unused
from components.platform.storage.publish import require_publishable
from components.platform.storage.shared_state.published_work import record_publication
from components.platform.storage.shared_state.root_lease import LeaseLost, RootLease
from components.platform.storage.uri import display_path
from components.ppo.checkpointing.checkpoint_manager import CheckpointManager
from components.ppo.checkpointing.fingerprint import folder_of, training_fingerprint
from components.ppo.config import TrainingConfig
from components.ppo.learners.factory import configure, read_initial_entropy
from components.ppo.tracking import TrainingTracker
from components.ppo.train import Trainer
from components.ppo.training_data import TrainingData, load_training_data

_REPORTED = tuple(
    """
    modules samples credit_assignment algorithm size_of module_weight validate_every patience ema_decay seed
    """.split()
)
"""Fields of the configuration that are reported as hyperparameters, for the model card."""


def run(config: TrainingConfig) -> None:
    """Train in `config.root_dir`, resuming if possible, and publish the best policy to `config.output`."""
    tf.get_logger().setLevel("ERROR")  # deprecations in tf-agents
    # Reproducible rewards need sums that do not depend on the scheduling of threads.
    tf.config.experimental.enable_op_determinism()
    configure(config)
    fingerprint = training_fingerprint(config)
    if config.fingerprint_root_dir:
        config = replace(config, root_dir=config.root_dir / folder_of(fingerprint))
    root = config.root_dir
    # Before the root directory exists: a refused input leaves nothing.
    require_publishable(config.output, "policy")
    data = load_training_data(config)
    with remove_if_unused(root):
        make_directory(root)
        _train_in(root, config, fingerprint, data)


def _train_in(root: Path, config: TrainingConfig, fingerprint: Mapping[str, str], data: TrainingData) -> None:
    with (
        continues_when_rerun(),
        shutdown_deadline(),
        explain_resource_exhausted(root),
        # Ends after the lease is released.
        TrainingTracker(root, lambda: {"problem": config.problem, **_hyperparameters(config)}) as tracker,
        RootLease(root, "training", results="checkpoints/*/*") as lease,
        record_publication(lease, config.output),
    ):
        tracker.start(lease)
        trainer = Trainer(config, fingerprint, CheckpointManager(lease, config.max_checkpoints), data, tracker.send)
        _train(trainer)
        _publish(config, trainer, lease)
        tracker.finish(config.output, trainer.summaries.curve)


def _train(trainer: Trainer) -> None:
    try:
        with closing(trainer):
            trainer.resume()
            trainer.run()
    except LeaseLost:
        raise
    except (KeyboardInterrupt, UserError):
        try:
            trainer.save()
            if saved := trainer.saver.saved:
                say(f"the state after iteration {saved} is saved in {display_path(trainer.config.root_dir)}")
        except UserError as error:
            say(f"warning: the last iterations are not saved: {error.problem}")
        raise


def _publish(config: TrainingConfig, trainer: Trainer, lease: RootLease) -> None:
    state = trainer.state
    report = {
        "iterations": state.iteration,
        "trained_s": state.trained_s,
        "best_iteration": state.best_iteration,
        "validation_reduction_percent": state.best_percent,
        "validation_history": state.history,
        "mean_rewards": state.rewards,
        "quarantine": trainer.quarantine.to_json(),
        "processors": available_processors(),
        "hyperparameters": {
            # The entropy is the only parameter of PPO that applies to every algorithm.
            "step": _hyperparameters(config),
            "gin": gin.operative_config_str(),
        },
    }
    with publish(config.output, "policy") as partial:
        export_policy(trainer.best, partial, trainer.clang, _policy_info(trainer), config.warmstart)
        (partial / "report.json").write_text(json.dumps(report, indent=1) + "\n")
        # The policy includes its training curve, so that an evaluation elsewhere can plot it.
        if (config.root_dir / "tensorboard").is_dir():
            shutil.copytree(config.root_dir / "tensorboard", partial / "tensorboard")
        # After `publish` has read the manifest that it will replace: as for the state of a search (tune/state.py).
        lease.update()
    change = trainer.objective.labels.comparative[state.best_percent < 0]
    start = "" if state.best_iteration else " (the policy that training started from)"
    say(
        f"best policy: iteration {state.best_iteration} of {state.iteration}{start}, {abs(state.best_percent):.2f}% "
        f"{change} than the heuristic on the validation modules"
    )


def _hyperparameters(config: TrainingConfig) -> dict[str, object]:
    return {name: getattr(config, name) for name in _REPORTED} | {"initial_entropy": read_initial_entropy()}


def _policy_info(trainer: Trainer) -> PolicyInfo:
    policy, state, data = trainer.best, trainer.state, trainer.data
    arguments = [module.arguments() for module in trainer.modules.values()]
    is_known = all(each[:1] == ("-cc1",) for each in arguments)  # not those of the driver
    has_tables = all(any(a.startswith("-funwind-tables=") for a in each) for each in arguments)
    return PolicyInfo(
        policy.problem,
        policy.features,
        policy.num_actions,
        trained_by="ppo",
        vocab_digest=data.info.vocab_digest,
        trace_digest=trainer.inputs["trace"],
        corpus_digest=trainer.inputs["corpus"],
        toolchain_digest=trainer.inputs["toolchain"],
        llvm_version=data.toolchain.llvm_version,
        optional_features=data.info.optional_features,
        trained_ranges=data.info.trained_ranges,
        unwind_tables=has_tables if is_known else None,
        metrics={
            "validation_reduction_percent": state.best_percent,
            "best_iteration": float(state.best_iteration),
            "iterations": float(state.iteration),
            "trained_s": state.trained_s,
        },
    )
