"""Command line of the policy concept: look at a policy's forms, and write them again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from components.console import UserError, run_step, say
from components.console.number_types import COUNT, SEED
from components.formats.policy import load_policy_info
from components.formats.toolchain import load_toolchain
from components.policy.dense import read_dense
from components.storage import publish, require_artifact
from components.storage.options import ARTIFACT, OUTPUT
from components.storage.uri import shown


@click.group()
def main() -> None:
    """Compare the forms of a trained policy, export it again, or import one of another training.

    \b
    Example:
      python -m components.policy compare --policy runs/demo/policy --trace runs/demo/trace
      python -m components.policy export --policy runs/demo/policy --toolchain runs/demo/training --aot \\
        --output runs/aot
      python -m components.policy import --saved-model inlining-Oz-v1.1/model --toolchain runs/demo/training \\
        --output runs/imported
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported


@main.command("compare")
@click.option("--policy", type=ARTIFACT, required=True, help="What the warmstart or the ppo step made.")
@click.option("--trace", type=ARTIFACT, required=True, help="Recorded decisions: what the trace step made.")
@click.option("--decisions", type=COUNT, default=2000, show_default=True, help="How many to compare.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Which ones.")
def compare_command(policy: Path, trace: Path, decisions: int, seed: int) -> None:
    """Run every form of a policy on recorded decisions; fail if any two of them decide differently.

    The forms are the arrays (weights.npz), the emitted C++ (policy.so), the SavedModel and the TensorFlow Lite model.

    \b
    Example:
      python -m components.policy compare --policy runs/demo/policy --trace runs/demo/trace
    """
    from components.policy.compare import compare

    require_artifact(policy, "policy")
    require_artifact(trace, "trace")
    agreements = compare(policy, trace, decisions, seed)
    for a in agreements:
        ties = f", {len(a.ties)} ties" if len(a.ties) else ""
        say(f"{a.form}: {len(a.differences)} of {a.decisions} decisions differ{ties}; logits by {a.max_error:.1e}")
    if any(len(a.differences) for a in agreements):
        forms = ", ".join(a.form for a in agreements if len(a.differences))
        raise UserError(f"{policy}: its forms decide differently from its weights: {forms}", "export the policy again")


@main.command("export")
@click.option("--policy", type=ARTIFACT, required=True, help="What the warmstart or the ppo step made.")
@click.option("--toolchain", type=ARTIFACT, required=True, help="A toolchain, whose clang compiles policy.so.")
@click.option("--output", type=OUTPUT, required=True, help="Directory of the new policy; made, or replaced.")
@click.option("--aot/--no-aot", default=False, show_default=True,
              help="Also the form that `toolchain --embed tf-aot` wants; takes a minute.")  # fmt: skip
def export_command(policy: Path, toolchain: Path, output: Path, aot: bool) -> None:
    """Write all forms of a policy again, from its weights; its origin in policy.json stays.

    \b
    Example:
      python -m components.policy export --policy runs/demo/policy --toolchain runs/demo/training --aot \\
        --output runs/aot
    """
    require_artifact(policy, "policy")
    info, compiler = load_policy_info(policy), load_toolchain(toolchain)
    dense = read_dense(policy)

    from components.policy.export import export_policy

    with publish(output) as partial:
        export_policy(dense, partial, compiler.clang, info)
        for kept in ("report.json", "tensorboard"):
            source = policy / kept
            if source.is_dir():
                shutil.copytree(source, partial / kept)
            elif source.is_file():
                shutil.copyfile(source, partial / kept)
        if aot:
            from components.policy.aot import compile_aot

            compile_aot(partial, dense.problem, compiler.clang)
    say(f"{shown(output)}: all forms of {shown(policy)}" + (", with aot/" if aot else ""))


@main.command("import")
@click.option("--saved-model", "source", type=ARTIFACT, required=True,
              help="Directory with saved_model.pb, as ml-compiler-opt publishes its policies.")
@click.option("--toolchain", type=ARTIFACT, required=True,
              help="Training toolchain, whose features it must be content with.")  # fmt: skip
@click.option("--output", type=OUTPUT, required=True, help="Directory of the new policy; made, or replaced.")
def import_command(source: Path, toolchain: Path, output: Path) -> None:
    """Take a policy that ml-compiler-opt trained: a SavedModel with the signature "action".

    Its problem is told by its decision. It must not want features that this LLVM does not have. What comes out can be
    evaluated, and a release clang carries it with --embed tf-aot; it cannot be trained further or tuned from, for
    this project does not know its layers. A SavedModel is a program: import only what you would run.

    \b
    Example:
      python -m components.policy import --saved-model inlining-Oz-v1.1/model --toolchain runs/demo/training \\
        --output runs/imported
      python -m components.evaluation --corpus runs/demo/corpus --toolchain runs/demo/training \\
        --policy runs/imported --output runs/imported-evaluation
      python -m components.toolchain --mode release --policy runs/imported --embed tf-aot --output runs/imported-clang
    """
    from components.policy.imported import import_policy

    compiler = load_toolchain(toolchain).require_mode("training")
    with publish(output) as partial:
        info = import_policy(source, partial, compiler)
    say(f"{shown(output)}: a policy for {info.problem} of {len(info.features)} features, from {shown(source)}")


if __name__ == "__main__":
    run_step(main)
