"""The command `mlgo`: `mlgo run` for the whole chain, `mlgo <step> ...` for one step."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from components.core.formats.policy import PRETRAINED_NAMES
from components.core.formats.strategy import SUPPORTED_LLVM_MAJORS
from components.platform.command import run_step
from components.platform.console import say
from components.platform.launcher.registry import STEPS
from components.platform.processes.python_module import module_command
from pipelines.cli.cluster import cluster_group
from pipelines.cli.flags import RUN_DIRECTORY
from pipelines.cli.image_help import IMAGE_HELP, current_image, image_help, image_usage, not_in_image
from pipelines.cli.images import images_group
from pipelines.cli.pipeline import pipeline_group, print_result
from pipelines.cli.retrain import retrain_group
from pipelines.cli.setup import setup_command
from pipelines.cli.storage import storage_group
from pipelines.cli.submit import SERVER_COMMANDS
from pipelines.parameters.check import describe_llvm_build, run_options, run_parameters
from pipelines.parameters.parameter import as_option

COMMANDS = {name: step for name, step in STEPS.items() if step.help}
"""Subcommands that run a step (`mlgo vocab ...`)."""


class StepGroup(click.Group):
    """A group that runs a step's subcommand by replacing this process.

    No step is imported here, so `mlgo --help` is instant and needs no TensorFlow. In a container image ($MLGO_IMAGE),
    there are only the commands that work in it, and the help is the image's.
    """

    def list_commands(self, context: click.Context) -> list[str]:
        groups = super().list_commands(context)
        if image := current_image():
            image_commands = IMAGE_HELP[image]
            return [*(group for group in groups if group in image_commands.groups), *image_commands.steps]
        return [*groups, *COMMANDS]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        image = current_image()
        is_command = name in COMMANDS or name in super().list_commands(context)
        if image and is_command and name not in self.list_commands(context):
            raise not_in_image(image, name)
        if name not in COMMANDS:
            return super().get_command(context, name)
        return click.Command(
            name,
            callback=lambda arguments: _become(name, arguments),
            params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
            context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
            add_help_option=False,  # the step itself answers --help
            help=COMMANDS[name].help,
            short_help=COMMANDS[name].help,
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
    os.execv(sys.executable, [*module_command(COMMANDS[step].module), *arguments])


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
cli.add_command(setup_command)
cli.add_command(storage_group)


@cli.command(context_settings={"show_default": True})
@click.option(
    "--output",
    type=RUN_DIRECTORY,
    required=True,
    metavar="DIR",
    help="New or empty directory of the run, with one artifact per step. Pass it again to resume, or to reuse "
    "finished steps.",
)
@run_options
def run(output: Path, **options: Any) -> None:
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
    from pipelines.local.run_locally import run_locally
    from pipelines.local.runners.process import ProcessRunner
    from pipelines.spec import COMPILED

    parameters = run_parameters(options)
    if remark := describe_llvm_build(parameters, as_option):
        say(remark)
    if clang := parameters["clang"]:
        from pipelines.parameters.policy_checks import check_external_clang

        own_sdk = bool(parameters["sdk"])
        check_external_clang(clang, options["llvm_major"], options["problem"], parameters["start_from"], own_sdk)
    skipped = run_locally(
        COMPILED, parameters, output, ProcessRunner(llvm_major=options["llvm_major"]), write=as_option
    )
    print_result(str(output), skipped)
    if parameters["tune_minutes"]:
        say(f"plan for this code: {output / 'plan' / PLAN_FILE} (docs/tune.md)")


def main() -> None:
    """Entry point of the console script."""
    majors = sorted({major for majors in SUPPORTED_LLVM_MAJORS.values() for major in majors})
    run_step(cli, f"\nLLVM {', '.join(map(str, majors))}; policies: {', '.join(PRETRAINED_NAMES)}")


if __name__ == "__main__":
    main()
