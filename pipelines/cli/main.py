"""The command `mlgo`: `mlgo run` for the whole chain, `mlgo <step> ...` for one step."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from components.core.formats.policy import PRETRAINED_NAMES
from components.core.formats.strategy import SUPPORTED_LLVM_MAJORS
from components.platform.command import run_step
from components.platform.console import say
from components.platform.launcher.registry import STEPS
from components.platform.processes.python_module import module_command
from pipelines.cli.flags import run_directory
from pipelines.cli.image_help import IMAGE_HELP, current_image, image_help, image_usage, not_in_image
from pipelines.parameters.check import describe_llvm_build, run_options, run_parameters
from pipelines.parameters.parameter import as_option

COMMANDS = {name: step for name, step in STEPS.items() if step.help}
"""Subcommands that run a step (`mlgo vocab ...`)."""


@dataclass(frozen=True)
class _Imported:
    """A command that is imported when it is called: some of them import for half a second.

    Attributes:
        place: module and variable, "pipelines.cli.cluster:cluster_group".
        help: what `mlgo --help` says of it.
    """

    place: str
    help: str

    def load(self) -> click.Command:
        module, _, name = self.place.partition(":")
        command: click.Command = getattr(import_module(module), name)
        command.short_help = self.help
        return command


IMPORTED = {
    "retrain": _Imported(
        "pipelines.cli.retrain:retrain_group", "Retrain, and promote policies that are clearly better."
    ),
    "pipeline": _Imported("pipelines.cli.profile:pipeline_group", "Compile the pipeline; run it here or on a server."),
    "cluster": _Imported("pipelines.cli.cluster:cluster_group", "Check a Kubernetes cluster before a run needs it."),
    "images": _Imported("pipelines.cli.images:images_group", "Build and push the container images."),
    "storage": _Imported("pipelines.cli.storage:storage_group", "Maintain artifacts in object storage."),
    "setup": _Imported(
        "pipelines.cli.setup:setup_command",
        "Install what commands need: Debian packages, TensorFlow, Ray, kfp.",
    ),
}
"""Commands that are neither steps nor `run`."""

SECTIONS = {
    "Make a program smaller": ("shrink", "forecast", "tune", "toolchain"),
    "Train a policy on your code": ("run", "retrain", "evaluation"),
    "Steps of a training": ("corpus", "trace", "vocab", "warmstart", "ppo", "policy", "log", "interactive"),
    "Servers, storage, setup": ("pipeline", "cluster", "images", "storage", "setup"),
}
"""Headings of `mlgo --help`, each with its commands."""


class StepGroup(click.Group):
    """A group that runs a step's subcommand by replacing this process.

    No step is imported here, so `mlgo --help` is instant and needs no TensorFlow. In a container image ($MLGO_IMAGE),
    there are only the commands that work in it, and the help is the image's.
    """

    def list_commands(self, context: click.Context) -> list[str]:
        if image := current_image():
            return [*sorted(IMAGE_HELP[image].groups), *IMAGE_HELP[image].steps]
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        image = current_image()
        is_command = name in COMMANDS or name in IMPORTED or name in self.commands
        if image and is_command and name not in self.list_commands(context):
            raise not_in_image(image, name)
        if name in IMPORTED:
            return IMPORTED[name].load()
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

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = get_close_matches(args[0], self.list_commands(context), n=1)
        if near and args[0] not in near and self.get_command(context, args[0]) is None:
            context.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self._short_help(name)) for name in names], col_max=12)

    def _short_help(self, name: str) -> str:
        described = COMMANDS.get(name) or IMPORTED.get(name)
        return described.help if described else self.commands[name].get_short_help_str(100)

    def get_help(self, context: click.Context) -> str:
        image = current_image()
        if not image:
            return super().get_help(context)
        described = ((name, self._short_help(name)) for name in self.list_commands(context))
        return f"Usage: {image_usage(image)}\n\n{image_help(image, described)}"


def _become(step: str, arguments: tuple[str, ...]) -> NoReturn:
    sys.stdout.flush()
    os.execv(sys.executable, [*module_command(COMMANDS[step].module), *arguments])


@click.group(cls=StepGroup, context_settings={"max_content_width": 110})
def cli() -> None:
    """Make C and C++ programs smaller with a clang whose policies are trained already, or are trained on your code.

    A policy decides which calls to inline, for size, or which value to evict from a register, for speed.

    \b
    Examples:
      cd YOUR_PROJECT && mlgo shrink
      mlgo run --compile-commands build/compile_commands.json --output runs/mine
      mlgo pipeline submit --host URL --param recipe=demo --pipeline-root gs://my-bucket/kfp
      eval "$(_MLGO_COMPLETE=bash_source mlgo)"    # completion; zsh_source, fish_source
    """


@cli.command(context_settings={"show_default": True})
@click.option(
    "--output",
    type=run_directory,
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
      mlgo run --input bazel-bin --input-type directory --output runs/mine
      mlgo run --compile-commands build/compile_commands.json --start-from pretrained --output runs/tuned
      mlgo run --compile-commands build/compile_commands.json --tune-minutes 15 --output runs/mine
      mlgo run --compile-commands build/compile_commands.json --strategy plugin --llvm-major 22 --output runs/mine
      mlgo run --recipe demo --strategy external --clang ../llvm/build/bin/clang --output runs/upstream
      mlgo run --problem regalloc --recipe demo --extra-policy runs/demo/policy --output runs/both
    """
    from components.core.compiler.inline_plan import PLAN_FILE
    from pipelines.cli.pipeline import print_result
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
