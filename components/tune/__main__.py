"""Command line of the tune step."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from components.core.compiler.options import ALLOW_CC1_OPTION
from components.core.formats.policy import PRETRAINED, PRETRAINED_NAMES
from components.core.projects.flags.options import program_options
from components.core.projects.option import CORPUS, TRUST_CORPUS
from components.platform.command import run_step
from components.platform.console import say
from components.platform.console.number_types import COUNT, FRACTION, LLVM_MAJOR, MINUTES, SEED, TIMEOUT_S
from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.manifest import MANIFEST
from components.platform.storage.options import ARTIFACT, FILE, OUTPUT, WORK_DIR, ArtifactOr
from components.platform.storage.uri import display_path, mirror, uri_of
from components.platform.workers.factory import HELP as WORKERS_HELP
from components.tune.config import SizeOf, TuneConfig

if TYPE_CHECKING:
    from components.core.projects.flags.request import RowsRequest


@click.group(
    invoke_without_command=True,
    subcommand_metavar="[add-choices ...]",
    context_settings={"show_default": True},
    epilog="""\b
Examples:
  # a plan for a program's modules, starting from the pretrained policy
  mlgo tune --corpus runs/mine/corpus --toolchain runs/mine/training --output runs/mine/plan
  # starting from your own policy, verified with the release clang that embeds it
  mlgo tune --corpus runs/mine/corpus --toolchain runs/mine/training --policy runs/mine/policy \\
    --release-toolchain runs/mine/release --minutes 60 --output runs/mine/plan
  # published only if the linked program is smaller than stock clang's, whichever of the rows it is built under
  mlgo tune --corpus runs/mine/corpus --toolchain runs/mine/training --release-toolchain runs/mine/release \\
    --build 'make -j$JOBS app' --source . --program app --row icf-all --row lto --output runs/mine/plan
  # use the plan
  runs/mine/release/bin/clang -Oz -mllvm -enable-ml-inliner=release \\
    -mllvm -mlgo-inline-plan=runs/mine/plan/inline.plan -c file.c
  # add what -mlgo-keep-smaller chose with this plan
  mlgo tune add-choices --choices choices --plan runs/mine/plan --output runs/mine/plan-with-choices
""",
)
@click.option("--corpus", type=CORPUS, help="The program's modules. The split is ignored.")
@click.option("--toolchain", type=ARTIFACT, help="Training toolchain.")
@click.option(
    "--policy",
    type=ArtifactOr(*PRETRAINED_NAMES),
    default=PRETRAINED,
    help="Policy that the search starts from, and that decides about calls that are not in the plan; only tried for "
    "whole programs.",
)
@click.option(
    "--release-toolchain",
    type=ARTIFACT,
    help="Release toolchain with this policy; verify the plan by compiling every module with it twice.",
)
@click.option("--output", type=OUTPUT, help="Directory of the plan; created or replaced.")
@click.option(
    "--root-dir",
    type=WORK_DIR,
    help="Directory of the search's state, from which the same command continues, on any machine if it is a URI. Only "
    "one search of the same inputs may use it.  [default: OUTPUT-search]",
)
@click.option("--minutes", type=MINUTES, default=TuneConfig.minutes, help="Wall time of the search.")
@click.option(
    "--flip-compiles",
    type=COUNT,
    default=TuneConfig.flip_compiles,
    help="Compiles of a module per round that measure flips of its decisions.",
)
@click.option(
    "--size-of",
    type=click.Choice(get_args(SizeOf)),
    default=TuneConfig.size_of,
    help="What to minimize: bytes by the share that the link keeps, or bytes of all modules.",
)
@click.option("--seed", type=SEED, default=TuneConfig.seed, help="Seed of the order in which flips are tried.")
@click.option("--workers", default=TuneConfig.workers, help=WORKERS_HELP)
@click.option("--timeout-s", type=TIMEOUT_S, default=TuneConfig.timeout_s, help="Timeout of one compile.")
@click.option(
    "--max-failed-fraction",
    type=FRACTION,
    default=TuneConfig.max_failed_fraction,
    help="Stop if more than one module and more than this fraction of the modules fails.",
)
@click.option("--usage/--no-usage", default=True, hidden=True, help="Say how a plan is used, at the end.")
@ALLOW_CC1_OPTION
@TRUST_CORPUS
@program_options(recipe_alone=False)
@click.pass_context
def main(
    context: click.Context,
    root_dir: Path | None,
    policy: Path | str,
    request: RowsRequest | None,
    usage: bool,
    **options: Any,
) -> None:
    """Search for the inlining decisions that make a program's own modules smallest.

    Writes inline.plan for the release clang, and the results as tune.json, modules.csv and model-card.md. The search
    starts from the policy's decisions, for whole programs (a corpus of --unit program) from LLVM's heuristic, and
    applies measured flips. An interrupted search continues when the command runs again.

    With --build, or --recipe and --row, the programs are linked at the end: by stock clang under every row of
    `mlgo evaluation flags`, by the release clang, and with the plan, which is published only if they are smaller than
    by both, each under its best row.
    """
    if context.invoked_subcommand is not None:
        return
    missing = [name for name in ("corpus", "toolchain", "output") if options[name] is None]
    if missing:
        raise click.UsageError(f"Missing option {', '.join('--' + name for name in missing)}.", context)
    output: Path = options.pop("output")
    # Imported here so that --help does not wait for NumPy.
    from components.core.compiler.advisor import Advisor
    from components.core.compiler.inline_plan import PLAN_FILE
    from components.core.policy.pretrained import pretrained_policy
    from components.tune.model_card import linked_title, planned_percent
    from components.tune.step import tune

    start = policy if isinstance(policy, Path) else pretrained_policy("inlining", name=policy)
    root = root_dir or _search_next_to(output)
    figures = tune(TuneConfig(root_dir=root, output=output, policy=start, link=request, **options))
    say(
        f"the plan lists {figures['modules']} of {figures['corpus_modules']} modules "
        f"({planned_percent(figures):.0f}% of the text), found in {figures['rounds']} rounds"
    )
    if unreached := figures["unreached_modules"]:
        keep = "heuristic" if figures["programs"] else "policy"
        say(f"  {unreached} modules were not reached and keep the {keep}'s decisions; run again, with more --minutes")
    if failed := figures["corpus_modules"] - figures["measured_modules"]:
        say(f"  {failed} modules do not compile and are not in these figures")
    _say_sizes(f"text of {figures['measured_modules']} modules", "", figures)
    if options["size_of"] == "linked":
        _say_sizes(linked_title(figures), "linked_", figures)
    if "release_modules" in figures:
        say(
            f"  the release clang reproduces the size of {figures['release_as_found']} of {figures['release_modules']} "
            f"modules of the plan, {figures['release_identical_twice']} with bit-identical objects in two compiles"
        )
    if not usage:
        return
    if "linked" in figures:
        _say_linked(figures["linked"])
    elif not figures["programs"]:
        say(
            "no program was linked with the plan: link and compare before you use it, or pass --build, or --recipe and "
            "--row"
        )
    plan = output / PLAN_FILE
    # Absolute, because a build compiles in many directories.
    shown = display_path(plan) if uri_of(plan) else plan.absolute()
    if figures["programs"]:
        say(f"link with: -Oz -flto -Wl,-mllvm,-mlgo-inline-plan={shown} -Wl,-mllvm,-mlgo-keep-smaller")
    else:
        flags = " ".join(Advisor("release").flags("inlining", None, None))
        say(f"use it with: -Oz {flags} -mllvm -mlgo-inline-plan={shown}")


@main.command("add-choices")
@click.option("--choices", type=FILE, required=True, help="The file of -mlgo-choices, of a build with --plan, if any.")
@click.option(
    "--plan", type=ARTIFACT, help="Plan to add to: output of `mlgo tune`. Without it, a plan of choices only."
)
@click.option("--output", type=OUTPUT, required=True, help="Directory of the plan; created or replaced.")
@click.option(
    "--llvm-major", type=LLVM_MAJOR, default=19, help="Without --plan: major version of the clang that chose."
)
def add(choices: Path, plan: Path | None, output: Path, llvm_major: int) -> None:
    """Add the choices of -mlgo-keep-smaller to a plan.

    With -mlgo-inline-plan and -mlgo-keep-smaller clang and lld take them without compiling several variants.
    """
    from components.core.compiler.inline_plan import PLAN_FILE, add_choices, read_choices, require_plan, write_plan

    chosen = read_choices(choices)
    if not chosen:
        raise UserError(
            f"{display_path(choices)} has no choices",
            "build with -mlgo-keep-smaller and -mlgo-choices, and pass the file of the latter",
        )
    with publish(output, "plan") as partial:
        if plan:
            count = add_choices(require_plan(plan), chosen, partial / PLAN_FILE)
            for file in plan.iterdir():
                if file.is_file() and file.name not in (PLAN_FILE, MANIFEST):
                    shutil.copyfile(file, partial / file.name)
        else:
            write_plan(partial / PLAN_FILE, [], llvm_major)
            count = add_choices(partial / PLAN_FILE, chosen, partial / PLAN_FILE)
    say(f"{display_path(output / PLAN_FILE)}: {count} choices; use it with -mlgo-inline-plan and -mlgo-keep-smaller")


def _say_sizes(title: str, prefix: str, figures: Mapping[str, Any]) -> None:
    say(f"  {title}:")
    for side, name in (("LLVM's heuristic", "heuristic"), ("policy", "policy"), ("plan", "plan")):
        reduction = figures.get(f"{name}_{prefix}reduction_percent")
        change = "" if reduction is None else f"  {-reduction:+.2f}%"
        say(f"    {side:<18}{figures[f'{name}_{prefix}bytes']:>12,} bytes{change}")


def _say_linked(linked: Mapping[str, Any]) -> None:
    import msgspec

    from components.core.projects.flags.types import FlagsComparison, smallest_by

    for program in msgspec.convert(linked, FlagsComparison).programs:
        stock, planned = program.best_stock, smallest_by(program.results, "plan")
        if stock and stock.sizes and planned and planned.sizes:
            say(
                f"  {program.project}/{program.name}, stripped: {planned.sizes.stripped:,} bytes with the plan "
                f"({planned.row}), {stock.sizes.stripped:,} by stock clang ({stock.row})"
            )


def _search_next_to(output: Path) -> Path:
    if (uri := uri_of(output)) is not None:
        return mirror(replace(uri, path=f"{uri.path}-search"))
    return output.with_name(f"{output.name}-search")


if __name__ == "__main__":
    run_step(main)
