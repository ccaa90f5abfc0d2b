"""Command line of the step that trains."""

from __future__ import annotations

import os
from typing import Any

import click
from click.core import ParameterSource

from components.core import problems
from components.core.compiler.options import ALLOW_CC1_OPTION
from components.core.formats.gin_bindings import parse_gin_bindings
from components.core.formats.policy import REGRESSED_JSON
from components.core.formats.toolchain import load_toolchain
from components.core.projects.option import CORPUS, TRUST_CORPUS
from components.platform.command import run_step
from components.platform.console import preset_option
from components.platform.console.number_types import COUNT, FRACTION, MINUTES, SEED, TIMEOUT_S, FiniteFloatRange
from components.platform.rayjob.options import choose_workers, rayjob_options
from components.platform.rayjob.step_lease import watch_step_lease
from components.platform.storage.options import ARTIFACT, FILE, OUTPUT, WORK_DIR
from components.platform.workers.factory import HELP as WORKERS_HELP
from components.platform.workers.factory import rayjob_workers
from components.ppo.config import (
    LIMITS,
    PRESETS,
    VALIDATE_EVERY,
    VALIDATE_EVERY_FINETUNING,
    TrainingConfig,
    restrict_to_capabilities,
)

EPILOG = """\b
Examples:
  An hour on this machine:
    mlgo ppo --corpus corpus --toolchain training --trace trace \\
        --warmstart warmstart --root-dir ppo --output policy --minutes 60
  Watch it:
    tensorboard --logdir ppo/tensorboard
  Resume after any interruption: run the same command again. Only one training
  may use a --root-dir.
  On a cluster of up to 16 pods that KubeRay starts, on GKE's spot nodes (run in a pod; all paths are URIs):
    mlgo ppo --workers rayjob:16 --spot-node-label cloud.google.com/gke-spot=true \\
        --cluster-image REGISTRY/mlgo-cluster@sha256:... --corpus gs://BUCKET/corpus ...
"""


@click.command(epilog=EPILOG, context_settings={"show_default": True})
@preset_option(PRESETS)
@click.option("--corpus", type=CORPUS, required=True, help="Corpus with splits.json.")
@click.option("--toolchain", type=ARTIFACT, required=True, help="Training toolchain.")
@click.option("--trace", type=ARTIFACT, required=True, help="Trace of the heuristic's decisions.")
@click.option("--warmstart", type=ARTIFACT, required=True, help="Policy to start from.")
@click.option("--root-dir", type=WORK_DIR, required=True, help="Directory of checkpoints and TensorBoard logs.")
@click.option(
    "--fingerprint-root-dir",
    is_flag=True,
    help="Train in a folder of --root-dir that is named by a fingerprint of inputs and hyperparameters, so that others "
    "start a new training instead of being refused.",
)
@click.option("--output", type=OUTPUT, required=True, help="Directory of the best policy; created or replaced.")
@click.option("--problem", default="inlining", help="Optimization problem.")
@click.option(
    "--minutes",
    type=MINUTES,
    help="Wall time of training, including resumed parts. Replaces the limits of a --preset, as the next two do.",
)
@click.option(
    "--iterations",
    type=click.IntRange(min=0, max=2**31 - 1),
    help="Maximum number of iterations. Without --minutes the result does not depend on the machine's speed.",
)
@click.option("--compiles", type=COUNT, help="Maximum number of compiles of training modules, up to whole iterations.")
@click.option(
    "--modules", type=COUNT, help=f"Modules per iteration.  [default: {problems.describe_field('training.modules')}]"
)
@click.option(
    "--samples",
    type=COUNT,
    help="Compiles of each module per iteration: samples, perturbations (es), or compiles with flips; for register "
    "allocation, flips of each function.  "
    f"[default: {problems.describe_field('training.samples')}]",
)
@click.option(
    "--credit-assignment",
    type=click.Choice(["counterfactual", "function", "module"]),
    help="Measure the value of decisions by compiling with them flipped, or estimate it from sampled compiles, by "
    "the functions that they change or by the whole module.  [default: counterfactual; module for es]",
)
@click.option(
    "--algorithm",
    type=click.Choice(["ppo", "dqn", "es"]),
    help="Policy gradients (ppo), action values (dqn, from counterfactuals only), or evolution strategies (es).  "
    f"[default: {problems.describe_field('training.algorithm')}; from a trained policy "
    f"{problems.describe_field('training.finetuning_algorithm')}]",
)
@click.option(
    "--size-of",
    type=click.Choice(["linked", "modules"]),
    default=TrainingConfig.size_of,
    help="Weight a function's bytes by the share that the project's link keeps, as estimated from the traced modules, "
    "or count all of them. For sizes only.",
)
@click.option(
    "--module-weight",
    type=FiniteFloatRange(min=0, max=1e6),
    default=TrainingConfig.module_weight,
    help="Weight of the module's size relative to its functions'; for sizes only.",
)
@click.option(
    "--validate-every",
    type=COUNT,
    help=f"Iterations between validations.  [default: {VALIDATE_EVERY}; {VALIDATE_EVERY_FINETUNING} from a trained "
    "policy]",
)
@click.option(
    "--patience",
    type=click.IntRange(min=0, max=2**31 - 1),
    default=TrainingConfig.patience,
    help="End after this many validations without a new best; 0 trains to the limit.",
)
@click.option(
    "--ema-decay",
    type=FiniteFloatRange(0, 1, max_open=True),
    default=TrainingConfig.ema_decay,
    help="EMA decay of the weights that ppo and es validate and publish (0 disables it).",
)
@click.option(
    "--max-checkpoints",
    type=COUNT,
    default=TrainingConfig.max_checkpoints,
    help="Checkpoints to keep.",
)
@click.option(
    "--checkpoint-every",
    type=COUNT,
    default=TrainingConfig.checkpoint_every,
    help="Iterations between checkpoints, which a killed training may have to repeat.",
)
@click.option(
    "--seed",
    type=SEED,
    default=TrainingConfig.seed,
    help="Random seed; rewards are reproducible on the same machine.",
)
@click.option(
    "--workers",
    default=TrainingConfig.workers,
    is_eager=True,  # other options depend on it
    callback=choose_workers,
    help=WORKERS_HELP,
)
@click.option(
    "--min-completed-fraction",
    type=FiniteFloatRange(0, 1, min_open=True),
    default=TrainingConfig.min_completed_fraction,
    help="Fraction of an iteration's modules after which the slow rest is cancelled, which biases the training.",
)
@click.option(
    "--timeout-s",
    type=TIMEOUT_S,
    default=TrainingConfig.timeout_s,
    help="Timeout of one compile.",
)
@click.option(
    "--max-failed-fraction",
    type=FRACTION,
    default=TrainingConfig.max_failed_fraction,
    help="Stop if more than this fraction of the modules fails.",
)
@click.option(
    "--oversample-modules",
    type=FILE,
    help="JSON list of modules that are part of every round, or the state of `mlgo retrain` with regressed modules.  "
    f"[default: {REGRESSED_JSON} of the warmstart, if it has one]",
)
@click.option(
    "--gin-file",
    "gin_files",
    type=FILE,
    multiple=True,
    help="File with hyperparameters; may be repeated.",
)
@click.option(
    "--gin-binding",
    "gin_bindings",
    metavar="NAME=VALUE",
    multiple=True,
    help="One hyperparameter, e.g. PpoParameters.learning_rate=1e-4; may be repeated.",
)
@click.option(
    "--gin-bindings",
    "run_gin_bindings",
    default="",
    show_default=False,
    metavar="NAME=VALUE;...",
    help="Hyperparameters of a whole run, separated by semicolons.",
)
@ALLOW_CC1_OPTION
@TRUST_CORPUS
@rayjob_options
def main(
    cluster_image: str, spot_node_label: str, ray_cluster_options: str, run_gin_bindings: str, **options: Any
) -> None:
    """Train a policy: by DQN for inlining, because a network learns well what measured decisions save; by PPO for
    register allocation and from a trained policy, because small steps suit gains that are hard to predict.

    --algorithm chooses another. The command is named ppo whichever algorithm it uses.
    """
    options["gin_bindings"] = parse_gin_bindings(run_gin_bindings) + options["gin_bindings"]
    context = click.get_current_context()
    passed = [name for name in LIMITS if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    for name in set(LIMITS) - set(passed) if passed else ():
        # Also in the context, from which a RayJob's command line is made.
        options[name] = context.params[name] = None
    options = {name: value for name, value in options.items() if value is not None}
    if not rayjob_workers(options["workers"]):
        toolchain = load_toolchain(options["toolchain"]).require_mode("training")
        options = restrict_to_capabilities(toolchain, options)
    config = TrainingConfig(**options)
    if rayjob_workers(config.workers):
        from components.ppo.run_on_cluster import run_as_rayjob

        return run_as_rayjob(context, config, cluster_image, spot_node_label, ray_cluster_options)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # suppresses start-up notices
    # Imported here so that --help and wrong options do not wait for TensorFlow.
    from components.ppo.step import run

    watch_step_lease()
    run(config)


if __name__ == "__main__":
    run_step(main)
