"""Command line of the PPO step."""

from __future__ import annotations

import os
from typing import Any

import click

from components.core import problems
from components.core.compiler.options import ALLOW_CC1_OPTION
from components.core.console import preset_option, run_step
from components.core.console.number_types import COUNT, FRACTION, MINUTES, SEED, TIMEOUT_S, FiniteFloatRange
from components.core.rayjob.options import RAYJOB_OPTIONS, choose_workers
from components.core.storage.options import ARTIFACT, FILE, OUTPUT, WORK_DIR
from components.core.workers.factory import HELP as WORKERS_HELP
from components.core.workers.factory import rayjob_workers
from components.ppo.config import PRESETS, PpoConfig

EPILOG = """\b
Examples:
  An hour on this machine:
    mlgo ppo --corpus corpus --toolchain training --trace trace \\
        --warmstart warmstart --root-dir ppo --output policy --minutes 60
  Watch it:
    tensorboard --logdir ppo/tensorboard
  Go on after an interruption, however it came: the same command again. Of two
  trainings on one --root-dir the second is refused.
  On a cluster of up to 16 pods that KubeRay starts for it, spot nodes of GKE's (from a pod; every place gs://):
    mlgo ppo --workers rayjob:16 --spot-node-label cloud.google.com/gke-spot=true \\
        --cluster-image REGISTRY/mlgo-cluster@sha256:... --corpus gs://BUCKET/corpus ...
"""


@click.command(epilog=EPILOG)
@preset_option(PRESETS)
@click.option("--corpus", type=ARTIFACT, required=True, help="Corpus with splits.json.")
@click.option("--toolchain", type=ARTIFACT, required=True, help="Training toolchain.")
@click.option("--trace", type=ARTIFACT, required=True, help="Trace: what the heuristic makes of each module.")
@click.option("--warmstart", type=ARTIFACT, required=True, help="Policy to start from.")
@click.option("--root-dir", type=WORK_DIR, required=True, help="Checkpoints and TensorBoard logs; kept.")
@click.option(
    "--fingerprint-root-dir",
    is_flag=True,
    help="Train in a folder of --root-dir named by a digest of inputs and hyperparameters: changed ones begin anew.",
)
@click.option("--output", type=OUTPUT, required=True, help="Where the best policy is published.")
@click.option("--problem", default="inlining", show_default=True, help="Optimization problem.")
@click.option("--minutes", type=MINUTES, help="Wall time to train, resumed parts counted.")
@click.option("--iterations", type=click.IntRange(min=0, max=2**31 - 1), help="Iterations to train, if that is less.")
@click.option(
    "--modules", type=COUNT, help=f"Modules an iteration.  [default: {problems.describe_field('training.modules')}]"
)
@click.option(
    "--samples",
    type=COUNT,
    help="Compiles of each module an iteration: samples, perturbations (es), or flips and one without; of register "
    "allocation flips of each function.  "
    f"[default: {problems.describe_field('training.samples')}]",
)
@click.option(
    "--credit-assignment",
    type=click.Choice(["counterfactual", "function", "module"]),
    help="Measure what decisions are worth by compiling with them flipped, or estimate it from sampled compiles, by "
    "the functions that they change or by the whole module.  [default: counterfactual; of es module]",
)
@click.option(
    "--algorithm",
    type=click.Choice(["ppo", "dqn", "es"]),
    help="Learn a policy by gradients, values of actions (from counterfactuals only), or a policy by perturbing it.  "
    f"[default: {problems.describe_field('training.algorithm')}]",
)
@click.option(
    "--objective",
    type=click.Choice(["linked", "modules"]),
    default=PpoConfig.objective,
    show_default=True,
    help="Count of a function's bytes what the project's link keeps, as far as the traced modules tell, or all of "
    "them. Of measured sizes only.",
)
@click.option(
    "--module-weight",
    type=FiniteFloatRange(min=0, max=1e6),
    default=PpoConfig.module_weight,
    show_default=True,
    help="Weight of the module's size beside its functions'; of no use where functions have scores.",
)
@click.option(
    "--validate-every",
    type=COUNT,
    default=PpoConfig.validate_every,
    show_default=True,
    help="Iterations between validations.",
)
@click.option(
    "--ema-decay",
    type=FiniteFloatRange(0, 1, max_open=True),
    default=PpoConfig.ema_decay,
    show_default=True,
    help="Of the moving average of the weights that ppo and es validate and publish; 0 for none.",
)
@click.option(
    "--max-checkpoints", type=COUNT, default=PpoConfig.max_checkpoints, show_default=True, help="Checkpoints to keep."
)
@click.option(
    "--checkpoint-every",
    type=COUNT,
    default=PpoConfig.checkpoint_every,
    show_default=True,
    help="Iterations between checkpoints: how many a killed training may have to repeat.",
)
@click.option(
    "--seed",
    type=SEED,
    default=PpoConfig.seed,
    show_default=True,
    help="Same seed, same machine: same rewards.",
)
@click.option(
    "--workers",
    default=PpoConfig.workers,
    show_default=True,
    is_eager=True,  # it decides what becomes of the others
    callback=choose_workers,
    help=WORKERS_HELP,
)
@click.option(
    "--min-completed-fraction",
    type=FiniteFloatRange(0, 1, min_open=True),
    default=PpoConfig.min_completed_fraction,
    show_default=True,
    help="Of an iteration's modules; the slow rest is given up, which biases the training.",
)
@click.option(
    "--timeout-s",
    type=TIMEOUT_S,
    default=PpoConfig.timeout_s,
    show_default=True,
    help="Of one compile.",
)
@click.option(
    "--max-failed-fraction",
    type=FRACTION,
    default=PpoConfig.max_failed_fraction,
    show_default=True,
    help="More modules than this failing stops the step.",
)
@click.option(
    "--oversample-modules",
    type=FILE,
    help="JSON list of modules that take part in every round, or the state of `mlgo retrain`: what regressed.",
)
@click.option(
    "--gin-file",
    "gin_files",
    type=FILE,
    multiple=True,
    help="More hyperparameters; may be repeated.",
)
@click.option(
    "--gin-binding",
    "gin_bindings",
    metavar="NAME=VALUE",
    multiple=True,
    help="One hyperparameter, e.g. PpoParameters.learning_rate=1e-4; may be repeated.",
)
@ALLOW_CC1_OPTION
@RAYJOB_OPTIONS
def main(cluster_image: str, spot_node_label: str, ray_cluster_options: str, **options: Any) -> None:
    """Train a policy by reinforcement learning on the code that it makes: its size, or its scores."""
    config = PpoConfig(**{name: value for name, value in options.items() if value is not None})
    if rayjob_workers(config.workers):
        from components.ppo.run_on_cluster import run_elsewhere

        return run_elsewhere(click.get_current_context(), config, cluster_image, spot_node_label, ray_cluster_options)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its start-up notices are not about this run
    # Here, not above: --help and a wrong option need not wait for TensorFlow.
    from components.ppo.step import run

    run(config)


if __name__ == "__main__":
    run_step(main)
