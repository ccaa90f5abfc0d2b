"""The command `mlgo`: `mlgo run` for the whole chain, `mlgo <step> ...` for one step."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn, get_args

import click

from components.core import problems
from components.core.formats.policy import HEURISTIC, PRETRAINED_HELP, PRETRAINED_NAMES
from components.core.formats.strategy import FeatureSet, Strategy, Targets
from components.core.projects.flags.options import RowNames
from components.core.projects.option import COMPILE_COMMANDS, LOCAL_CORPUS, RECIPE
from components.platform.command import run_step
from components.platform.console import PRESETS, say
from components.platform.console.number_types import FINITE_FLOAT, LLVM_MAJOR, POSITIVE_MINUTES, REDUCTION_PERCENT, SEED
from pipelines.cli.cluster import cluster_group
from pipelines.cli.flags import RUN_DIRECTORY
from pipelines.cli.image_help import IMAGE_HELP, current_image, image_help, image_usage, not_in_image
from pipelines.cli.images import images_group
from pipelines.cli.pipeline import pipeline_group, print_result, program_path
from pipelines.cli.retrain import retrain_group
from pipelines.cli.storage import storage_group
from pipelines.cli.submit import SERVER_COMMANDS

STEPS = {
    "toolchain": "Build a training clang, a release clang that embeds a policy, or LLVM's libraries.",
    "corpus": "Turn code into a corpus: bitcode and compile command of each module.",
    "trace": "Record every decision of the default heuristic, or export a trace for ml-compiler-opt.",
    "vocab": "Compute the quantiles of each feature of a trace.",
    "warmstart": "Train a policy that imitates the default heuristic.",
    "ppo": "Train a policy by reinforcement learning (DQN, PPO, ES), starting from the warmstart.",
    "policy": "Explain the decisions of a policy, export or import it.",
    "evaluation": "Measure a policy on held-out code.",
    "tune": "Search for the inlining decisions that make one program smallest: a plan for the release clang.",
}
"""Subcommands that run a step (`mlgo vocab ...`), with their short help."""


class StepGroup(click.Group):
    """A group that runs a step's subcommand by replacing this process.

    No step is imported here, so `mlgo --help` is instant and needs no TensorFlow. In a container image ($MLGO_IMAGE),
    there are only the commands that work in it, and the help is the image's.
    """

    def list_commands(self, context: click.Context) -> list[str]:
        groups = super().list_commands(context)
        if image := current_image():
            known = IMAGE_HELP[image]
            return [*(group for group in groups if group in known.groups), *known.steps]
        return [*groups, *STEPS]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        image = current_image()
        known = name in STEPS or name in super().list_commands(context)
        if image and known and name not in self.list_commands(context):
            raise not_in_image(image, name)
        if name not in STEPS:
            return super().get_command(context, name)
        return click.Command(
            name,
            callback=lambda arguments: _become(name, arguments),
            params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
            context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
            add_help_option=False,  # the step itself answers --help
            help=STEPS[name],
            short_help=STEPS[name],
        )

    def get_help(self, context: click.Context) -> str:
        image = current_image()
        if not image:
            return super().get_help(context)
        commands = ((name, self.get_command(context, name)) for name in self.list_commands(context))
        described = ((name, command.get_short_help_str(100)) for name, command in commands if command)
        return f"Usage: {image_usage(image)}\n\n{image_help(image, described)}"


def _become(step: str, arguments: tuple[str, ...]) -> NoReturn:
    sys.stdout.flush()
    # -P: do not import a folder of the working directory that has the name of one of our modules.
    os.execv(sys.executable, [sys.executable, "-P", "-m", f"components.{step}", *arguments])


@click.group(cls=StepGroup, context_settings={"max_content_width": 110})
def cli() -> None:
    """Train a policy for LLVM on your C or C++ code, and build a clang that embeds it.

    The policy decides which calls to inline, for size, or which value to evict from a register, for speed.

    \b
    Examples:
      mlgo run --compile-commands build/compile_commands.json --output runs/mine
      mlgo vocab --help
    """


for command in SERVER_COMMANDS:
    pipeline_group.add_command(command)
cli.add_command(cluster_group)
cli.add_command(images_group)
cli.add_command(pipeline_group)
cli.add_command(retrain_group)
cli.add_command(storage_group)


@cli.command(context_settings={"show_default": True})
@click.option(
    "--compile-commands",
    type=COMPILE_COMMANDS,
    metavar="FILE|DIR",
    help="compile_commands.json of a build with embedded bitcode, or its directory: see `mlgo corpus compilers "
    "--help`.",
)
@click.option(
    "--corpus",
    type=LOCAL_CORPUS,
    metavar="DIR",
    help="An existing corpus, made by `mlgo corpus` or by mlgo-utils.",
)
@click.option(
    "--recipe",
    type=RECIPE,
    metavar="FILE|NAME",
    help="Projects to fetch and build: a recipe file or its URI, or the name of a built-in recipe, such as demo.",
)
@click.option(
    "--output",
    type=RUN_DIRECTORY,
    required=True,
    metavar="DIR",
    help="New or empty directory of the run, with one artifact per step. Pass it again to resume, or to reuse "
    "finished steps.",
)
@click.option(
    "--preset",
    type=click.Choice(PRESETS),
    default="demo",
    help="How much training: tiny only shows that everything works, full trains for an hour.",
)
@click.option(
    "--train-minutes", type=POSITIVE_MINUTES, metavar="M", help="Minutes of training, instead of the preset's."
)
@click.option(
    "--problem", type=click.Choice(problems.names()), default="inlining", help="The decision that the policy makes."
)
@click.option(
    "--workers", default="local", metavar="KIND[:N]", help="Where to compile modules, and how many at a time."
)
@click.option(
    "--strategy",
    type=click.Choice(get_args(Strategy)),
    default="sdk",
    help="sdk: link a clang with the policy. plugin: build a pass plugin for the installed clang; inlining only. "
    "external: train with a clang that others built in LLVM's development mode.",
)
@click.option(
    "--clang", default="", show_default=False, metavar="PATH", help="The training clang of --strategy external."
)
@click.option(
    "--targets",
    type=click.Choice(get_args(Targets)),
    default="native",
    help="Code generators of the clangs; all for code of other processors than this machine's.",
)
@click.option(
    "--llvm-major",
    type=LLVM_MAJOR,
    default=19,
    metavar="N",
    help="Major version of LLVM: 19; 22 with --strategy plugin, or with its source.",
)
@click.option(
    "--llvm-source", default="deb", metavar="deb|git:TAG|PATH|URI", help="Where LLVM's matching source files come from."
)
@click.option(
    "--sdk",
    default="",
    show_default=False,
    metavar="DIR|URI",
    help="LLVM that the clangs are linked from, built by mlgo toolchain --mode sdk.  [default: the installed one]",
)
@click.option(
    "--features",
    type=click.Choice(get_args(FeatureSet)),
    help="Features of the policy: extended, all numbers that our training clang logs; llvm, those of upstream LLVM; "
    "ir2vec (experimental), all numbers and IR2Vec's embeddings, with --strategy plugin --llvm-major 22."
    "  [default: extended; llvm with --strategy external]",
)
@click.option(
    "--ir2vec-vocab",
    default="",
    show_default=False,
    metavar="random|FILE|URI",
    help="Vocabulary of --features ir2vec: LLVM's JSON file, or random vectors.",
)
@click.option("--seed", type=SEED, default=1, metavar="N", help="Random seed: the same seed gives the same training.")
@click.option(
    "--min-reduction-percent",
    type=REDUCTION_PERCENT,
    metavar="X",
    help="Percentage by which held-out modules must shrink, or lower their scores, for the verdict `better`."
    f"  [default: {problems.describe_field('min_reduction_percent')}]",
)
@click.option(
    "--max-slowdown-percent",
    type=FINITE_FLOAT,
    metavar="X",
    help="For inlining with --recipe: the verdict is not `better` if benchmarks execute X% more instructions."
    "  [default: no limit]",
)
@click.option(
    "--flag-rows",
    type=RowNames(),
    default="",
    metavar="NAMES",
    help="For inlining with --recipe: also link its programs under these rows of `mlgo evaluation flags`, separated by "
    "commas (all: every one). `better`, and a plan, only if they are smaller than by stock clang.",
)
@click.option(
    "--extra-policy",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="A policy for another problem that the release clang embeds as well.",
)
@click.option(
    "--start-from",
    default=HEURISTIC,
    metavar="|".join([HEURISTIC, *PRETRAINED_NAMES, "DIR", "URI"]),
    help="Policy that training starts from: one that imitates the heuristic, one that comes with this "
    f"project ({PRETRAINED_HELP}), or one of yours.",
)
@click.option(
    "--tune-minutes",
    type=POSITIVE_MINUTES,
    metavar="M",
    help="Also search M minutes for a plan: the inlining decisions that make this code smallest.",
)
def run(
    compile_commands: Path | None,
    corpus: Path | None,
    recipe: Path | None,
    output: Path,
    preset: str,
    train_minutes: float | None,
    problem: str,
    workers: str,
    strategy: str,
    clang: str,
    targets: str,
    llvm_major: int,
    llvm_source: str,
    sdk: str,
    features: str | None,
    ir2vec_vocab: str,
    seed: int,
    min_reduction_percent: float | None,
    max_slowdown_percent: float | None,
    flag_rows: tuple[str, ...],
    extra_policy: Path | None,
    start_from: str,
    tune_minutes: float | None,
) -> None:
    """Train a policy on your code, and build a clang that embeds it.

    Runs every step in order: training clang, corpus, default trace, vocab, warmstart, training, evaluation on held-out
    modules, release clang, release report. Each step's artifact is a directory in --output. A second run reuses the
    steps whose inputs have not changed; a killed run resumes where it stopped.

    Where an option takes a word or a path, such as --recipe NAME|FILE, the word wins: write a path that equals a word
    as ./WORD.

    The release clang embeds the trained policy, or, if that is not better than the policy that training started from,
    the latter; a training from the heuristic that gains nothing embeds a pretrained policy that does. The report says
    which one, and the exit status is 0.

    \b
    Examples:
      mlgo run --compile-commands build/compile_commands.json --output runs/mine --train-minutes 60
      mlgo run --recipe demo --output runs/demo
      mlgo run --compile-commands build/compile_commands.json --start-from pretrained --output runs/tuned
      mlgo run --compile-commands build/compile_commands.json --tune-minutes 15 --output runs/mine
      mlgo run --compile-commands build/compile_commands.json --strategy plugin --llvm-major 22 --output runs/mine
      mlgo run --recipe demo --strategy external --clang ../llvm/build/bin/clang --output runs/upstream
      mlgo run --problem regalloc --recipe demo --extra-policy runs/demo/policy --output runs/both
    """
    from components.core.compiler.inline_plan import PLAN_FILE
    from pipelines.local.options import RunOptions
    from pipelines.local.run_locally import run_locally
    from pipelines.local.runners.process import ProcessRunner
    from pipelines.spec import COMPILED
    from pipelines.validation import as_option, place_words

    options = RunOptions(
        output=output,
        compile_commands=_absolute(compile_commands),
        corpus=_absolute(corpus),
        recipe=_absolute(recipe),
        preset=preset,
        problem=problem,
        workers=workers,
        strategy=strategy,
        clang=program_path(clang),
        targets=targets,
        llvm_major=llvm_major,
        llvm_source=place_words("llvm_source").absolute(llvm_source),
        sdk=place_words("sdk").absolute(sdk),
        features=features,
        ir2vec_vocab=place_words("ir2vec_vocab").absolute(ir2vec_vocab),
        train_minutes=train_minutes,
        seed=seed,
        min_reduction_percent=min_reduction_percent,
        max_slowdown_percent=max_slowdown_percent,
        flag_rows=flag_rows,
        extra_policy=_absolute(extra_policy),
        start_from=place_words("start_from").absolute(start_from),
        tune_minutes=tune_minutes,
    )
    if clang:
        from pipelines.policy_checks import check_external_clang

        check_external_clang(options.clang, llvm_major, problem, options.start_from, bool(sdk))
    runner = ProcessRunner(llvm_major=llvm_major)
    skipped = run_locally(COMPILED, options.parameters(), options.output, runner, spelled=as_option)
    print_result(str(options.output), skipped)
    if tune_minutes is not None:
        say(f"plan for this code: {options.output / 'plan' / PLAN_FILE} (docs/tune.md)")


def _absolute(path: Path | None) -> Path | None:
    return path.absolute() if path else None


def main() -> None:
    """Entry point of the console script."""
    run_step(cli)


if __name__ == "__main__":
    main()
