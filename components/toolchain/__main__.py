"""The command `mlgo toolchain`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import click

from components.core import problems
from components.core.formats.embeddings import RANDOM
from components.core.formats.policy import PRETRAINED_HELP, PRETRAINED_NAMES
from components.core.formats.strategy import (
    Strategy,
    Targets,
    check_strategy,
    release_strategy,
)
from components.platform.command import run_step
from components.platform.console.number_types import JOBS, LLVM_MAJOR
from components.platform.errors import UserError
from components.platform.storage.options import ARTIFACT, FILE, OUTPUT, ArtifactOr
from components.toolchain.config import SdkConfig, ToolchainConfig
from components.toolchain.make import make_toolchain
from components.toolchain.option_types import CmakeDefinition, CmakeDefinitions, CodeGenerators, ProjectNames
from components.toolchain.sdk_build import make_sdk


class _ModeOption(click.Option):
    """An option of some modes, which its help names first. Other modes refuse it."""

    def __init__(self, *arguments: Any, modes: tuple[str, ...], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.modes, self.help = modes, f"{', '.join(modes)}: {self.help}"


_sdk_option = functools.partial(click.option, cls=_ModeOption, modes=("sdk",))
_training_option = functools.partial(click.option, cls=_ModeOption, modes=("training",))
_release_option = functools.partial(click.option, cls=_ModeOption, modes=("release",))
_clang_option = functools.partial(click.option, cls=_ModeOption, modes=("training", "release"))


# fmt: off
@click.command(
    epilog="""\b
Examples:
  # a clang that makes code smaller without any training
  mlgo toolchain --mode release --policy pretrained --output build/clang
  # a clang that logs decisions and loads policies (takes about a minute)
  mlgo toolchain --mode training --output runs/mine/training
  # a clang with a trained policy, which decides at -Os and -Oz
  mlgo toolchain --mode release --policy runs/mine/policy --output runs/mine/release
  # a clang with two: for inlining and, with -mllvm -regalloc-enable-advisor=release, for register allocation
  mlgo toolchain --mode release --policy runs/mine/policy --policy runs/regalloc/policy \\
    --output runs/both
  # a plugin for Debian's clang 22
  mlgo toolchain --strategy plugin --llvm-major 22 --mode release --policy runs/mine/policy \\
    --output runs/mine/plugin
  # a clang that others built in LLVM's development mode, with TensorFlow Lite
  mlgo toolchain --strategy external --clang ../llvm/build/bin/clang --mode training --output runs/mine/training
  # your own LLVM: build it once, then link clangs from it
  mlgo toolchain --mode sdk --llvm-source ../llvm-project --output gs://my-bucket/sdk
  mlgo toolchain --mode training --sdk gs://my-bucket/sdk --output runs/mine/training
"""
)
@click.option("--mode", type=click.Choice(["training", "release", "sdk"]), required=True,
              help="training: logs decisions and loads policies at run time; release: embeds policies; sdk: LLVM's own "
                   "libraries and clang, built from source (hours), for --sdk of the other two.")
@click.option("--output", type=OUTPUT, required=True, metavar="DIR", help="Directory of the toolchain.")
@_clang_option("--strategy", type=click.Choice(get_args(Strategy)), default="sdk", show_default=True,
               help="sdk links a clang from the installed LLVM SDK; plugin builds a pass plugin for the installed "
                    "clang, inlining only; external uses a training clang that others built in LLVM's development "
                    "mode, its release clang is built as sdk or plugin.")
@_training_option("--clang", default="", metavar="PATH", help="with --strategy external, the clang that others built.")
@_training_option("--problem", type=click.Choice(["", *problems.names()]), default="", metavar="NAME",
                  help="with --strategy external, problem whose decisions the clang must log.  [default: any]")
@click.option("--llvm-major", type=LLVM_MAJOR, default=19, show_default=True,
              help="Major version of the installed LLVM: 19; 22 with --strategy plugin, or with its source.")
@click.option("--llvm-source", default="deb", show_default=True, metavar="deb|git:TAG|DIR|URI",
              help="Source of the matching LLVM files: the Debian source package, a tag of llvm-project, or a "
                   "directory, also one in object storage.")
@_release_option("--policy", "policies", type=ArtifactOr(*PRETRAINED_NAMES), multiple=True,
                 help=f"the policy to embed, or the pretrained ones of this project ({PRETRAINED_HELP}). "
                      "Repeat for a policy of another problem; one of yours replaces the pretrained one.")
@_release_option("--extra-policy", type=ARTIFACT, metavar="DIR", help="same as a second --policy, for pipelines.")
@_release_option("--embed", type=click.Choice(["cpp", "tf-aot"]), default="cpp", show_default=True,
                 help="form of the policy to embed: generated C++, or the object of TensorFlow's AOT compiler.")
@_training_option("--ir2vec-vocab", type=ArtifactOr(RANDOM, kind=FILE),
                  help="log IR2Vec's embeddings of functions as features, from this vocabulary of LLVM's format "
                       "or from random vectors; LLVM 22 with --strategy plugin.")
@click.option("--targets", type=CodeGenerators(), default="native", show_default=True, metavar="native|all|NAME,...",
              help="Code generators: this machine's, all of the SDK, or, with --mode sdk, a list such as X86,ARM.")
@_sdk_option("--projects", type=ProjectNames(), default="", metavar="NAME,...",
             help="projects of llvm-project to configure next to clang and lld, such as polly; what else they "
                  "install is named in --define LLVM_DISTRIBUTION_COMPONENTS=NAME;...")
@_sdk_option("--define", "definitions", type=CmakeDefinition(), multiple=True, metavar="NAME=VALUE",
             help="a variable of LLVM's CMake project, such as LLVM_ENABLE_LTO=Thin. Can be repeated.")
@_sdk_option("--definitions", "more_definitions", type=CmakeDefinitions(), default="", metavar="'NAME=VALUE ...'",
             help="same as several --define, quoted as in a shell, for pipelines.")
@_clang_option("--sdk", type=ARTIFACT, metavar="DIR|URI",
               help="prefix of the LLVM SDK, also one that --mode sdk built.  [default: the installed one]")
@click.option("--cache", type=click.Path(path_type=Path), metavar="DIR",
              help="Directory that caches downloads and objects.  [default: $MLGO_CACHE_DIR or "
                   "~/.cache/mlgo-pipeline]")
@click.option("--jobs", type=JOBS, metavar="N", help="Parallel compiles.  [default: processors]")
@click.pass_context
def main(
    context: click.Context,
    mode: str,
    policies: tuple[Path | str, ...],
    extra_policy: Path | None,
    definitions: tuple[tuple[str, str], ...],
    more_definitions: tuple[tuple[str, str], ...],
    **options: Any,
) -> None:
    """Build a clang for learned policies: link an LLVM SDK with the few source files that use a policy.

    The SDK is the installed one, or one that --mode sdk builds from LLVM's source.
    """
    _refuse_options_of_other_modes(context, mode)
    if mode == "sdk":
        make_sdk(SdkConfig(definitions=dict(definitions + more_definitions), **_fields_of(SdkConfig, options)))
        return
    strategy, major, targets = options["strategy"], options["llvm_major"], options["targets"]
    if targets not in get_args(Targets):
        raise UserError(
            f"--targets {targets}: a clang is linked with the code generator of this machine or with all of its SDK",
            f"pass --targets all, and --sdk with what --mode sdk --targets {targets} built",
        )
    check_strategy(strategy, major, "--strategy {}", "--llvm-major {}")
    from components.core.policy.pretrained import resolve_pretrained  # imports NumPy

    embeddable = problems.names("decided_by_plugin" if release_strategy(strategy, major) == "plugin" else "")
    embedded = resolve_pretrained([*policies, *([extra_policy] if extra_policy else [])], embeddable)
    make_toolchain(ToolchainConfig(policies=tuple(embedded), **_fields_of(ToolchainConfig, {"mode": mode, **options})))


def _refuse_options_of_other_modes(context: click.Context, mode: str) -> None:
    for option in context.command.params:
        if not isinstance(option, _ModeOption) or mode in option.modes:
            continue
        if context.params[str(option.name)] not in (option.default, None, "", ()):
            name = option.opts[0]
            raise UserError(
                f"{name} is an option of --mode {' and '.join(option.modes)}",
                f"omit {name}, or pass --mode {option.modes[0]}",
            )


def _fields_of(config: type[SdkConfig | ToolchainConfig], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are fields of `config` and have values; for the others it has defaults."""
    return {field.name: options[field.name] for field in fields(config) if options.get(field.name) is not None}


if __name__ == "__main__":
    run_step(main)
