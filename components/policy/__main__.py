"""Command line of policies: explain decisions, compare and export the forms of a policy, import a policy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import click

from components.core import problems
from components.core.formats.corpus import load_corpus
from components.core.formats.embeddings import check_vocabulary
from components.core.formats.policy import (
    PRETRAINED_HELP,
    PRETRAINED_NAMES,
    PolicyInfo,
    check_optional_features,
    load_policy_info,
    require_policy,
)
from components.core.formats.toolchain import Toolchain, load_toolchain
from components.core.policy.dense import read_dense
from components.core.projects.option import CORPUS, TRUST_CORPUS
from components.platform.command import run_step
from components.platform.console import say
from components.platform.console.number_types import COUNT, SEED
from components.platform.errors import UserError
from components.platform.storage import publish, require_artifact
from components.platform.storage.options import ARTIFACT, OUTPUT, ArtifactOr
from components.platform.storage.output_files import require_writable
from components.platform.storage.uri import display_path


@click.group()
def main() -> None:
    """Explain the decisions of a policy, compare its forms, export it again, or import one of another project.

    \b
    Example:
      mlgo policy compare --policy runs/demo/policy --trace runs/demo/trace
      mlgo policy export --policy runs/demo/policy --toolchain runs/demo/training --aot \\
        --output runs/aot
      mlgo policy import --saved-model inlining-Oz-v1.1/model --toolchain runs/demo/training \\
        --output runs/imported
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported


@main.command("compare")
@click.option("--policy", type=ARTIFACT, required=True, help="Output of the warmstart or ppo step.")
@click.option("--trace", type=ARTIFACT, required=True, help="Recorded decisions: output of the trace step.")
@click.option("--decisions", type=COUNT, default=2000, show_default=True, help="Number of decisions to compare.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed that selects the decisions.")
def compare_command(policy: Path, trace: Path, decisions: int, seed: int) -> None:
    """Run every form of a policy on recorded decisions; fail if any of them decides differently.

    The forms are the arrays (weights.npz), the generated C++ (policy.so), the SavedModel and the TensorFlow Lite model.

    \b
    Example:
      mlgo policy compare --policy runs/demo/policy --trace runs/demo/trace
    """
    from components.policy.compare import compare

    require_policy(policy)
    require_artifact(trace, "trace")
    agreements = compare(policy, trace, decisions, seed)
    for a in agreements:
        ties = f", {len(a.ties)} ties" if len(a.ties) else ""
        say(f"{a.form}: {len(a.differences)} of {a.decisions} decisions differ{ties}; logit error {a.max_error:.1e}")
    if any(len(a.differences) for a in agreements):
        forms = ", ".join(a.form for a in agreements if len(a.differences))
        raise UserError(f"{policy}: forms decide differently from its weights: {forms}", "export the policy again")


@main.command("export")
@click.option(
    "--policy",
    "names_or_paths",
    type=ArtifactOr(*PRETRAINED_NAMES),
    required=True,
    multiple=True,
    help=f"Output of the warmstart or ppo step, or the pretrained policies ({PRETRAINED_HELP}).",
)
@click.option(
    "--problem",
    type=click.Choice(problems.names()),
    help="Problem of a pretrained policy.  [default: inlining; with --for-llvm all of the toolchain]",
)
@click.option("--toolchain", type=ARTIFACT, required=True, help="Toolchain whose clang compiles the policy.")
@click.option("--output", type=OUTPUT, help="Directory of the new policy; created or replaced.")
@click.option(
    "--aot/--no-aot",
    default=False,
    show_default=True,
    help="Also write the form that `toolchain --embed tf-aot` requires; takes a minute. With --for-llvm: SavedModels "
    "also of policies that have none, for builds of LLVM with TensorFlow.",
)
@click.option(
    "--for-llvm",
    type=OUTPUT,
    metavar="DIR",
    help="Instead of --output: directory with what LLVM's own build needs to embed policies, at most one per problem.",
)
@click.option(
    "--optional-feature",
    "optional_features",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --output: feature that a compiler need not have, and the value that the policy then assumes. May be "
    "repeated.",
)
@click.option("--target", default="", metavar="TRIPLE", help="Machine that the LLVM of --for-llvm runs on.")
@click.option("--clang", help="Clang that compiles for --target.  [default: the toolchain's]")
def export_command(
    names_or_paths: tuple[Path | str, ...],
    problem: str | None,
    toolchain: Path,
    output: Path | None,
    aot: bool,
    for_llvm: Path | None,
    optional_features: tuple[str, ...],
    target: str,
    clang: str | None,
) -> None:
    """Write all forms of a policy again, from its weights, or the files that embed it in an LLVM that you build.

    Optional features that a training toolchain does not log are removed: the new policy decides with their values.

    \b
    Examples:
      mlgo policy export --policy runs/demo/policy --toolchain runs/demo/training --aot \\
        --output runs/aot
      mlgo policy export --policy pretrained-llvm --toolchain runs/mine/training --for-llvm runs/for-llvm
    """
    from components.core.policy.pretrained import resolve_pretrained

    if (output is None) == (for_llvm is None):
        raise UserError("exactly one kind of export is needed", "pass --output DIR, or --for-llvm DIR")
    for policy in names_or_paths:
        if isinstance(policy, Path):
            require_policy(policy)
    if problem and all(isinstance(policy, Path) for policy in names_or_paths):
        raise UserError(f"--problem {problem}: the given policies have their own", "leave it out")
    compiler = load_toolchain(toolchain)
    decided = compiler.upstream_features if for_llvm and not problem else [problem or "inlining"]
    policies = resolve_pretrained(names_or_paths, decided)
    if for_llvm is not None:
        if optional_features:
            raise UserError("--optional-feature with --for-llvm", "export the policy with --output first")
        _export_for_llvm(policies, compiler, for_llvm, target, clang, aot)
    elif output is not None:
        if len(policies) != 1:
            raise UserError("--output takes one policy", "pass --policy once")
        _export_again(policies[0], compiler, output, aot, optional_features)


def _export_again(
    policy: Path, compiler: Toolchain, output: Path, aot: bool, optional_features: tuple[str, ...]
) -> None:
    from components.core.policy.export import export_policy
    from components.core.policy.optional_features import fit_to_compiler

    dense, info = read_dense(policy), load_policy_info(policy)
    if optional_features:
        info = replace(info, optional_features={**info.optional_features, **_parse_values(optional_features, info)})
    if compiler.mode == "training" and info.optional_features:
        dense, info = fit_to_compiler(dense, info, compiler.features.get(info.problem, ()))

    with publish(output, "policy") as partial:
        export_policy(dense, partial, compiler.clang, info, policy)
        if (policy / "tensorboard").is_dir():
            shutil.copytree(policy / "tensorboard", partial / "tensorboard")
        if (policy / "report.json").is_file():
            shutil.copyfile(policy / "report.json", partial / "report.json")
        if aot:
            from components.policy.tf_aot.compile import compile_aot

            compile_aot(partial, dense.problem, compiler.clang)
    say(f"{display_path(output)}: all forms of {display_path(policy)}" + (", with aot/" if aot else ""))


def _parse_values(texts: tuple[str, ...], info: PolicyInfo) -> dict[str, float]:
    values: dict[str, float] = {}
    try:
        for text in texts:
            name, _equals, value = text.partition("=")
            check_optional_features({name: float(value)}, info.features)
            values[name] = float(value)
    except ValueError as error:
        raise UserError(f"--optional-feature {text}: {error}", "pass NAME=VALUE of a scalar feature") from None
    return values


def _export_for_llvm(
    policies: Sequence[Path], compiler: Toolchain, output: Path, target: str, clang: str | None, saved_models: bool
) -> None:
    from components.policy.llvm_build.export import CACHE_FILE, export_for_llvm

    if not compiler.upstream_features:
        compiler.require_mode("training")
    by_problem: dict[str, Path] = {}
    for policy in policies:
        problem = problems.get(load_policy_info(policy).problem).name
        if problem in by_problem:
            raise UserError(f"{by_problem[problem]} and {policy} are both policies for {problem}", "pass one of them")
        if problem not in compiler.upstream_features:
            raise UserError(f"{compiler.directory} has no advisor for {problem}", "pass a toolchain of --strategy sdk")
        by_problem[problem] = policy
    program = shutil.which(clang) if clang else str(compiler.clang)
    if program is None:
        raise UserError(f"compiler {clang!r} not found", "pass --clang PATH")
    with publish(output, "export for LLVM") as partial:
        export_for_llvm(by_problem, compiler.upstream_features, partial, Path(program), target, saved_models)
    say(f"cmake -C {display_path(output / CACHE_FILE)} ...; see {display_path(output / 'README.md')}")


@main.command("import")
@click.option(
    "--saved-model",
    "source",
    type=ARTIFACT,
    required=True,
    help="Directory with saved_model.pb, in the form that ml-compiler-opt publishes.",
)
@click.option(
    "--toolchain", type=ARTIFACT, required=True, help="Training toolchain, which must log the policy's features."
)
@click.option("--output", type=OUTPUT, required=True, help="Directory of the new policy; created or replaced.")
def import_command(source: Path, toolchain: Path, output: Path) -> None:
    """Import a policy that ml-compiler-opt trained: a SavedModel with the signature "action".

    The name of its decision determines its problem. This LLVM must have all of its features. The imported policy can be
    evaluated, and embedded in a release clang with --embed tf-aot; it cannot be trained further or tuned from, because
    this project does not know its layers. A SavedModel is a program: import only what you would run.

    \b
    Example:
      mlgo policy import --saved-model inlining-Oz-v1.1/model --toolchain runs/demo/training \\
        --output runs/imported
      mlgo evaluation --corpus runs/demo/corpus --toolchain runs/demo/training \\
        --policy runs/imported --output runs/imported-evaluation
      mlgo toolchain --mode release --policy runs/imported --embed tf-aot --output runs/imported-clang
    """
    from components.policy.tf_aot.import_saved_model import import_policy

    compiler = load_toolchain(toolchain).require_mode("training")
    with publish(output, "policy") as partial:
        info = import_policy(source, partial, compiler)
    say(
        f"{display_path(output)}: a policy for {info.problem} of {len(info.features)} features, "
        f"from {display_path(source)}"
    )


@main.command("explain")
@click.argument("module")
@click.option(
    "--policy",
    "name_or_path",
    type=ArtifactOr(*PRETRAINED_NAMES),
    required=True,
    help="Output of the warmstart or ppo step, for inlining.",
)
@click.option("--corpus", type=CORPUS, required=True, help="Corpus with the module.")
@TRUST_CORPUS
@click.option("--toolchain", type=ARTIFACT, help="Training toolchain.")
@click.option("--clang", help="Instead of --toolchain: any clang of LLVM 17 or later, for a policy of LLVM's features.")
@click.option(
    "--flip-compiles",
    type=click.IntRange(0, 1000),
    default=24,
    show_default=True,
    help="Compiles that measure decisions; with our training clangs each measures several, otherwise one.",
)
@click.option("--limit", type=COUNT, default=20, show_default=True, help="Number of decisions in the table.")
@click.option("--csv", "table", type=click.Path(path_type=Path, dir_okay=False), help="File for all decisions.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed that selects the measured decisions.")
def explain_command(
    module: str,
    name_or_path: Path | str,
    corpus: Path,
    toolchain: Path | None,
    clang: str | None,
    flip_compiles: int,
    limit: int,
    table: Path | None,
    seed: int,
) -> None:
    """Show the inlining decisions of a policy in MODULE, the most harmful first.

    For each: what LLVM's heuristic would have done, the policy's margin (difference of its two logits), and the bytes
    that the decision saves in comparison with the other one, measured by compiling the module with the other one. --csv
    also has the features. Any clang but our training clangs measures one decision per compile, the least sure first.

    \b
    Examples:
      mlgo policy explain zstd/lib/zstd.c.o --policy runs/demo/policy --corpus runs/demo/corpus \\
        --toolchain runs/demo/training --csv decisions.csv
      mlgo policy explain zstd/lib/zstd.c.o --policy pretrained-llvm --corpus runs/demo/corpus --clang clang-22
    """
    from components.core.compiler.clang_programs import clang_version
    from components.core.counterfactual.explain import explain_with_stock_clang, explain_with_training_clang
    from components.core.policy.pretrained import pretrained_policy
    from components.policy.explain import print_explanation

    if (toolchain is None) == (clang is None):
        raise UserError("exactly one compiler is needed", "pass --toolchain DIR, or --clang NAME")
    if table is not None:
        require_writable(table, "--csv")
    path = str(toolchain / "bin" / "clang") if toolchain else shutil.which(str(clang))
    if path is None:
        raise UserError(f"compiler {clang!r} not found", "pass --clang PATH")
    policy = name_or_path
    if not isinstance(policy, Path):
        policy = pretrained_policy("inlining", clang=Path(path), name=policy)
    if load_policy_info(policy).problem != "inlining":
        raise UserError(f"{policy} is no inlining policy", "register allocation has no calls to explain")
    modules = {candidate.name: candidate for candidate in load_corpus(corpus).modules}
    corpus_module = modules.get(module)
    if corpus_module is None:
        near = get_close_matches(module, modules, n=3, cutoff=0) or ["none"]
        raise UserError(
            f"{corpus} has no module {module}", f"its corpus_description.json lists them, such as {', '.join(near)}"
        )
    if toolchain is not None:
        compiler = load_toolchain(toolchain).require_mode("training")
        check_vocabulary(load_policy_info(policy), compiler)
        if "forced_decisions" in compiler.capabilities:
            explanation = explain_with_training_clang(policy, corpus_module, compiler.clang, flip_compiles, seed)
        else:
            major = int(compiler.llvm_version.partition(".")[0])
            explanation = explain_with_stock_clang(policy, corpus_module, compiler.clang, major, flip_compiles)
    else:
        major = clang_version(path, "pass another --clang")[0]
        explanation = explain_with_stock_clang(policy, corpus_module, Path(path), major, flip_compiles)
    print_explanation(explanation, limit)
    if table is not None:
        explanation.write_csv(table)


if __name__ == "__main__":
    run_step(main)
