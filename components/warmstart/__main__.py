"""Command line of the warmstart step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

import click

from components.core.formats.deployment import Deployment, read_deployment
from components.core.formats.gin_bindings import network_bindings, parse_gin_bindings
from components.core.formats.policy import HEURISTIC, PRETRAINED_HELP, PRETRAINED_NAMES
from components.core.formats.strategy import FeatureSet
from components.platform.command import run_step
from components.platform.console import preset_option, say
from components.platform.console.number_types import COUNT, SEED, FiniteFloatRange
from components.platform.storage.options import ARTIFACT, FILE, OUTPUT, ArtifactOr
from components.platform.storage.uri import display_path
from components.warmstart.config import WarmstartConfig

_DEFAULTS = WarmstartConfig(Path(), Path(), Path(), Path())


@click.command(
    context_settings={"show_default": True},
    epilog="""\b
Example:
  mlgo warmstart --trace runs/demo/trace --vocab runs/demo/vocab --toolchain runs/demo/training \\
    --output runs/demo/warmstart
Example: fine-tune the pretrained policy
  mlgo warmstart --start-from pretrained --trace runs/mine/trace --vocab runs/mine/vocab \\
    --toolchain runs/mine/training --output runs/mine/warmstart
""",
)
@preset_option({"tiny": {"epochs": 20}})
@click.option("--trace", type=ARTIFACT, required=True, help="Trace of the decisions to imitate.")
@click.option(
    "--vocab",
    type=ARTIFACT,
    required=True,
    help="Vocab of that trace; or a local one of ml-compiler-opt.",
)
@click.option("--toolchain", type=ARTIFACT, required=True, help="Training toolchain that made the trace.")
@click.option("--output", type=OUTPUT, required=True, help="Directory of the policy; created or replaced.")
@click.option(
    "--start-from",
    type=ArtifactOr(HEURISTIC, *PRETRAINED_NAMES),
    help="Policy that training starts from: a new one that imitates the heuristic, a pretrained one "
    f"({PRETRAINED_HELP}), or your own. The latter two are not changed and keep their normalization.  [default: with "
    "--retrain-state the deployed policy, otherwise heuristic]",
)
@click.option(
    "--retrain-state",
    metavar="URI",
    help="State of `mlgo retrain`: start from the policy that is deployed, if there is one for this LLVM, and list the "
    "modules that it regressed for training.",
)
@click.option(
    "--epochs",
    type=COUNT,
    default=_DEFAULTS.epochs,
    help="Passes over the decisions.",
)
@click.option(
    "--batch-size",
    type=COUNT,
    default=_DEFAULTS.batch_size,
    help="Maximum decisions per training step; smaller for small traces.",
)
@click.option(
    "--learning-rate",
    type=FiniteFloatRange(min=0, min_open=True, max=1e6),
    default=_DEFAULTS.learning_rate,
    help="Peak learning rate of Adam; it decays to zero along a cosine.",
)
@click.option(
    "--entropy-weight",
    type=FiniteFloatRange(min=0, max=1e6),
    default=_DEFAULTS.entropy_weight,
    help="Weight of an entropy bonus, so that PPO explores more.",
)
@click.option(
    "--temperature",
    type=FiniteFloatRange(min=0, min_open=True, max=1e6),
    default=_DEFAULTS.temperature,
    help="Divisor of the exported logits: above 1, samples vary more; decisions stay the same.",
)
@click.option(
    "--features",
    type=click.Choice(get_args(FeatureSet)),
    default=_DEFAULTS.features,
    help="Features of this policy and of those trained from it: all numbers that the training clang logs, those of "
    "upstream LLVM, or (experimental) all numbers and IR2Vec's embeddings of functions.",
)
@click.option(
    "--heldout-fraction",
    type=FiniteFloatRange(0, 0.9),
    default=_DEFAULTS.heldout_fraction,
    help="Fraction of the modules on which agreement is measured; they are not trained on.",
)
@click.option(
    "--seed",
    type=SEED,
    default=_DEFAULTS.seed,
    help="Seed of the initial weights, the order of the decisions and the held-out modules.",
)
@click.option(
    "--gin-file",
    "gin_files",
    type=FILE,
    multiple=True,
    help="Network hyperparameters; may be repeated.",
)
@click.option(
    "--gin-binding",
    "gin_bindings",
    multiple=True,
    metavar="NAME=VALUE",
    help="One hyperparameter, e.g. actor_network.fc_layer_params=(64,64,32); may be repeated.",
)
@click.option(
    "--gin-bindings",
    "run_gin_bindings",
    default="",
    show_default=False,
    metavar="NAME=VALUE;...",
    help="Hyperparameters of a whole run, separated by semicolons; those of training are ignored.",
)
def main(start_from: Path | str | None, retrain_state: str | None, run_gin_bindings: str, **arguments: Any) -> None:
    """Train a policy that imitates LLVM's heuristic, or adopt a trained one, as the start of reinforcement learning.

    Writes a policy (policy.json, SavedModel, TensorFlow Lite, C++), TensorBoard summaries, and report.json with the
    agreement on decisions of held-out modules, or, for an adopted policy, on the trace's decisions.
    """
    # Before TensorFlow is imported, which takes seconds: --help must not wait for it.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # matrix products with AVX-512 if available
    from components.warmstart.adopt import find_deployed_start
    from components.warmstart.train import train

    arguments["gin_bindings"] = network_bindings(parse_gin_bindings(run_gin_bindings)) + arguments["gin_bindings"]
    deployment = read_deployment(retrain_state) if retrain_state else Deployment()
    if start_from is None:
        start_from = find_deployed_start(deployment, arguments["toolchain"]) if retrain_state else HEURISTIC
    config = WarmstartConfig(start_from=str(start_from), regressed=deployment.regressed, **arguments)
    report = train(config)
    speed = f"; {report.decisions_per_s:,.0f} decisions/s" if report.epochs else ""
    say(f"{display_path(config.output)}: {report.summary()}{speed}")


if __name__ == "__main__":
    run_step(main)
