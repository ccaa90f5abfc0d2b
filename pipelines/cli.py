"""The command `mlgo`: `mlgo run` for the whole chain, `mlgo <step> ...` for one step."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from components import problems
from components.console import PRESETS, UserError, run_step, say
from components.console.number_types import FINITE_FLOAT, LLVM_MAJOR, MINUTES, SEED
from components.projects.option import RECIPE
from pipelines.flags import RUN_DIRECTORY
from pipelines.images_cli import images_group
from pipelines.pipeline_cli import pipeline_group
from pipelines.retrain_cli import retrain_group
from pipelines.storage_cli import storage_group

STEPS = {
    "toolchain": "build a training clang, or the release clang that embeds a policy",
    "corpus": "turn code into a corpus: bitcode and command line of each module",
    "trace": "record every decision of the default heuristic; export it for ml-compiler-opt",
    "vocab": "quantiles of each feature of a trace",
    "warmstart": "train a policy that imitates the default heuristic",
    "ppo": "train a policy that is better than that",
    "policy": "compare the forms of a policy with each other",
    "evaluation": "measure a policy on code that it has not seen",
    "tune": "search for the decisions that make one program smallest: a plan for the release clang",
}
"""Command line of each step: `mlgo vocab ...` is `python -m components.vocab ...`."""


class StepGroup(click.Group):
    """A group whose unknown subcommands are steps, run by replacing this process: no step is imported here, so that
    `mlgo --help` is instant and needs no TensorFlow."""

    def list_commands(self, context: click.Context) -> list[str]:
        here = _steps_here()
        return [*(super().list_commands(context) if here == set(STEPS) else ()), *(s for s in STEPS if s in here)]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in STEPS:
            return super().get_command(context, name)
        if name not in _steps_here():
            image = os.environ.get("MLGO_IMAGE", "")
            raise UserError(f"the step {name} is not in the image {image!r}", f"use the image that has {name}")
        return click.Command(
            name,
            callback=lambda arguments: _become(name, arguments),
            params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
            context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
            add_help_option=False,  # --help is the step's to answer
            help=STEPS[name],
            short_help=STEPS[name],
        )


def _steps_here() -> set[str]:
    """All steps, or in a container image those that it has what they need for ($MLGO_STEPS)."""
    return set(os.environ.get("MLGO_STEPS", " ".join(STEPS)).split())


def _become(step: str, arguments: tuple[str, ...]) -> NoReturn:
    sys.stdout.flush()
    # -P: a folder that the user stands in and that is named as a module is must not be imported instead of it.
    os.execv(sys.executable, [sys.executable, "-P", "-m", f"components.{step}", *arguments])


@click.group(cls=StepGroup, context_settings={"max_content_width": 110})
def cli() -> None:
    """Trains a policy for LLVM on your C or C++ code and builds the clang that carries it: what to inline, for size, or
    which value to evict from a register, for speed.

    \b
    Examples:
      mlgo run --compile-commands build/compile_commands.json --output runs/mine
      mlgo vocab --help
    """


cli.add_command(images_group)
cli.add_command(pipeline_group)
cli.add_command(retrain_group)
cli.add_command(storage_group)


@cli.command(context_settings={"show_default": True})
@click.option("--compile-commands", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
              help="compile_commands.json of a project built with `-Xclang -fembed-bitcode=all`.")
@click.option("--corpus", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
              help="A corpus that exists already, made by `mlgo corpus` or by mlgo-utils.")
@click.option("--recipe", type=RECIPE, metavar="FILE|NAME",
              help="Projects to fetch and build: a recipe file, a gs:// URI, or one of ours by name, such as demo.")
@click.option("--output", type=RUN_DIRECTORY, required=True, metavar="DIR",
              help="Where the artifact of each step goes. Use the same one again to go on or to reuse.")
@click.option("--preset", type=click.Choice(PRESETS), default="demo",
              help="How much training: tiny only shows that it works, full trains for an hour.")
@click.option("--train-minutes", type=MINUTES, metavar="M", help="Minutes of PPO, instead of the preset's.")
@click.option("--problem", type=click.Choice(problems.names()), default="inlining",
              help="The decision that the policy makes.")
@click.option("--workers", default="local", metavar="KIND[:N]", help="Where modules are compiled, how many at a time.")
@click.option("--llvm-major", type=LLVM_MAJOR, default=19, metavar="N",
              help="The LLVM whose clang is trained and released.")
@click.option("--llvm-source", default="deb", metavar="deb|git:TAG|PATH",
              help="Where LLVM's matching source files come from.")
@click.option("--seed", type=SEED, default=1, metavar="N",
              help="Of everything random: same seed, same training.")
@click.option("--min-reduction-percent", type=FINITE_FLOAT, metavar="X",
              help="Held-out modules must shrink, or get lower scores, by this for the verdict `better`."
                   f"  [default: {problems.told('min_reduction_percent')}]")
@click.option("--max-slowdown-percent", type=FINITE_FLOAT, metavar="X",
              help="Of inlining with --recipe: not better if programs execute this much more.  [default: no limit]")
@click.option("--with-policy", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
              help="A policy of another problem that the release clang carries as well.")
@click.option("--start-from", default="heuristic", metavar="heuristic|pretrained|DIR",
              help="What training starts from: a policy that imitates the heuristic, the one that comes with this "
                   "project, or one of yours, to be fine-tuned.")  # fmt: skip
@click.option("--tune-minutes", type=MINUTES, metavar="M",
              help="Also search for a plan, so many minutes: the inlining decisions that make this very code smallest.")
def run(
    compile_commands: Path | None,
    corpus: Path | None,
    recipe: Path | None,
    output: Path,
    preset: str,
    train_minutes: float | None,
    problem: str,
    workers: str,
    llvm_major: int,
    llvm_source: str,
    seed: int,
    min_reduction_percent: float | None,
    max_slowdown_percent: float | None,
    with_policy: Path | None,
    start_from: str,
    tune_minutes: float | None,
) -> None:
    """Code in, a clang with a policy trained on it out.

    Runs every step in order: training clang, corpus, default trace, vocab, warmstart, PPO, evaluation on modules that
    were held out, release clang, size report. Each step's artifact is a directory in --output. Run again, it reuses the
    steps whose inputs have not changed; killed, it goes on where it stopped.

    \b
    Examples:
      mlgo run --compile-commands build/compile_commands.json --output runs/mine --train-minutes 60
      mlgo run --recipe demo --output runs/demo
      mlgo run --compile-commands build/compile_commands.json --start-from pretrained --output runs/tuned
      mlgo run --compile-commands build/compile_commands.json --tune-minutes 15 --output runs/mine
      mlgo run --problem regalloc --recipe demo --with-policy runs/demo/policy --output runs/both
    """
    from components.compiler.inline_plan import PLAN_FILE
    from components.evaluation.table import print_table, read_metrics
    from pipelines.local import run_locally
    from pipelines.options import RunOptions
    from pipelines.process_runner import ProcessRunner
    from pipelines.spec import COMPILED

    options = RunOptions(
        output=output,
        compile_commands=_absolute(compile_commands),
        corpus=_absolute(corpus),
        recipe=_absolute(recipe),
        preset=preset,
        problem=problem,
        workers=workers,
        llvm_major=llvm_major,
        llvm_source=str(Path(llvm_source).absolute()) if Path(llvm_source).is_dir() else llvm_source,
        train_minutes=train_minutes,
        seed=seed,
        min_reduction_percent=min_reduction_percent,
        max_slowdown_percent=max_slowdown_percent,
        with_policy=_absolute(with_policy),
        start_from=str(Path(start_from).absolute()) if Path(start_from).is_dir() else start_from,
        tune_minutes=tune_minutes,
    )
    run_locally(COMPILED, options.parameters(), options.output, ProcessRunner(llvm_major=llvm_major))
    report = options.output / "size_report"
    print_table(read_metrics(report), report)
    if tune_minutes is not None:
        say(f"plan for this code: {options.output / 'plan' / PLAN_FILE} (docs/tune.md)")


def _absolute(path: Path | None) -> Path | None:
    return path.absolute() if path else None


def main() -> None:
    """Entry point of the console script."""
    run_step(cli)


if __name__ == "__main__":
    main()
