"""The command `mlgo toolchain`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

import click

from components.core import problems
from components.core.formats.ir2vec_vocabulary import RANDOM
from components.core.formats.policy import PRETRAINED_HELP, PRETRAINED_NAMES
from components.core.formats.strategy import (
    EXTERNAL,
    PLUGIN_PROBLEMS,
    Strategy,
    Targets,
    check_strategy,
    release_strategy,
)
from components.core.formats.toolchain import Mode
from components.platform.command import run_step
from components.platform.console.number_types import JOBS, LLVM_MAJOR
from components.platform.errors import UserError
from components.platform.storage.options import ARTIFACT, FILE, OUTPUT, ArtifactOr
from components.toolchain.config import SdkConfig, ToolchainConfig
from components.toolchain.make import make_toolchain
from components.toolchain.option_types import CmakeDefinition, CmakeDefinitions, CodeGenerators, ProjectNames
from components.toolchain.sdk_build import make_sdk

_PATH = click.Path(path_type=Path)


# fmt: off
@click.command(
    epilog="""\b
Examples:
  # a clang that makes code smaller without any training
  mlgo toolchain --mode release --policy pretrained --output build/clang
  # a clang that logs decisions and loads policies (takes about a minute)
  mlgo toolchain --mode training --output runs/mine/training
  # a clang with a trained policy; use it with: clang -Oz -mllvm -enable-ml-inliner=release
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
@click.option("--strategy", type=click.Choice(get_args(Strategy)), default="sdk", show_default=True,
              help="sdk: link a clang from the installed LLVM SDK. plugin: build a pass plugin for the installed "
                   "clang; inlining only. external: use a training clang that others built in LLVM's development mode; "
                   "its release clang is built as sdk or plugin.")
@click.option("--clang", default="", metavar="PATH",
              help="training, external: the clang that others built.")
@click.option("--problem", type=click.Choice(["", *problems.names()]), default="", metavar="NAME",
              help="training, external: problem whose decisions the clang must log.  [default: any]")
@click.option("--llvm-major", type=LLVM_MAJOR, default=19, show_default=True,
              help="Major version of the installed LLVM: 19; 22 with --strategy plugin, or with its source.")
@click.option("--llvm-source", default="deb", show_default=True, metavar="deb|git:TAG|DIR|URI",
              help="Source of the matching LLVM files: the Debian source package, a tag of llvm-project, or a "
                   "directory, also one in object storage.")
@click.option("--policy", "policies", type=ArtifactOr(*PRETRAINED_NAMES), multiple=True,
              help=f"release: the policy to embed, or the pretrained ones of this project ({PRETRAINED_HELP}). "
                   "Repeat for a policy of another problem; one of yours replaces the pretrained one.")
@click.option("--extra-policy", type=ARTIFACT, metavar="DIR",
              help="release: same as a second --policy, for pipelines.")
@click.option("--embed", type=click.Choice(["cpp", "tf-aot"]), default="cpp", show_default=True,
              help="release: form of the policy to embed: generated C++, or the object of TensorFlow's AOT compiler.")
@click.option("--ir2vec-vocab", type=ArtifactOr(RANDOM, kind=FILE),
              help="training: log IR2Vec's embeddings of functions as features, from this vocabulary of LLVM's format "
                   "or from random vectors; LLVM 22 with --strategy plugin.")
@click.option("--targets", type=CodeGenerators(), default="native", show_default=True, metavar="native|all|NAME,...",
              help="Code generators: this machine's, all of the SDK, or, with --mode sdk, a list such as X86,ARM.")
@click.option("--projects", type=ProjectNames(), default="", metavar="NAME,...",
              help="sdk: projects of llvm-project to configure next to clang and lld, such as polly; what else they "
                   "install is named in --define LLVM_DISTRIBUTION_COMPONENTS=NAME;...")
@click.option("--define", "definitions", type=CmakeDefinition(), multiple=True, metavar="NAME=VALUE",
              help="sdk: a variable of LLVM's CMake project, such as LLVM_ENABLE_LTO=Thin. Can be repeated.")
@click.option("--definitions", "more_definitions", type=CmakeDefinitions(), default="", metavar="'NAME=VALUE ...'",
              help="sdk: same as several --define, quoted as in a shell, for pipelines.")
@click.option("--sdk", type=ARTIFACT, metavar="DIR|URI",
              help="Prefix of the LLVM SDK, also one that --mode sdk built.  [default: the installed one]")
@click.option("--cache", type=_PATH, metavar="DIR",
              help="Directory that caches downloads and objects.  [default: $MLGO_CACHE_DIR or "
                   "~/.cache/mlgo-pipeline]")
@click.option("--jobs", type=JOBS, metavar="N", help="Parallel compiles.  [default: processors]")
def main(
    mode: str,
    policies: tuple[Path | str, ...],
    extra_policy: Path | None,
    projects: tuple[str, ...],
    definitions: tuple[tuple[str, str], ...],
    more_definitions: tuple[tuple[str, str], ...],
    **given: Any,
) -> None:
    """Build a clang for learned policies: link an LLVM SDK with the few source files that use a policy.

    The SDK is the installed one, or one that --mode sdk builds from LLVM's source.
    """
    given = {name: value for name, value in given.items() if value is not None}
    definitions += more_definitions
    if mode == "sdk":
        _make_sdk([*policies, *([extra_policy] if extra_policy else [])], dict(definitions), given, projects)
        return
    if definitions or projects:
        raise UserError(
            f"{'--define' if definitions else '--projects'} is for LLVM's own build", "omit it, or pass --mode sdk"
        )
    if (given["clang"] or given["problem"]) and (mode, given["strategy"]) != ("training", EXTERNAL):
        raise UserError(
            "--clang and --problem describe a training clang that others built",
            f"omit them, or pass --mode training --strategy {EXTERNAL}",
        )
    if (targets := given["targets"]) not in get_args(Targets):
        raise UserError(
            f"--targets {targets}: a clang is linked with the code generator of this machine or with all of its SDK",
            f"pass --targets all, and --sdk with what --mode sdk --targets {targets} built",
        )
    check_strategy(given["strategy"], given["llvm_major"], "--strategy {}", "--llvm-major {}")
    directories = _find_policies([*policies, *([extra_policy] if extra_policy else [])], given)
    make_toolchain(ToolchainConfig(mode=cast(Mode, mode), policies=tuple(directories), **given))


def _make_sdk(
    policies: Collection[object], definitions: dict[str, str], given: dict[str, Any], projects: tuple[str, ...]
) -> None:
    unused = [*policies, given.pop("clang"), given.pop("problem"), given.pop("ir2vec_vocab", None), given.get("sdk")]
    if any(unused) or given.pop("strategy") != "sdk" or given.pop("embed") != "cpp":
        raise UserError(
            "an SDK is LLVM alone",
            "omit --policy, --extra-policy, --embed, --ir2vec-vocab, --sdk, --strategy, --clang and --problem",
        )
    make_sdk(SdkConfig(projects=projects, definitions=definitions, **given))


def _find_policies(policies: Sequence[Path | str], given: Mapping[str, Any]) -> list[Path]:
    """Return the policies to embed: the given ones, and the pretrained ones that this release clang can have."""
    from components.core.policy.pretrained import with_pretrained  # imports NumPy

    released = release_strategy(given["strategy"], given["llvm_major"])
    return with_pretrained(policies, PLUGIN_PROBLEMS if released == "plugin" else problems.names())


if __name__ == "__main__":
    run_step(main)
