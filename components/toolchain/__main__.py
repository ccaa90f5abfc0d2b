"""The command `mlgo toolchain`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click

from components.core.console import run_step
from components.core.console.number_types import JOBS, LLVM_MAJOR
from components.core.formats.policy import PRETRAINED
from components.core.formats.strategy import Strategy, Targets
from components.core.storage.options import ARTIFACT, OUTPUT, ArtifactOr
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import make_toolchain

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
"""
)
@click.option("--mode", type=click.Choice(["training", "release"]), required=True,
              help="training: logs decisions and loads policies at run time; release: embeds policies.")
@click.option("--output", type=OUTPUT, required=True, metavar="DIR", help="Directory of the toolchain.")
@click.option("--strategy", type=click.Choice(get_args(Strategy)), default="sdk", show_default=True,
              help="sdk: link a clang from the installed LLVM SDK. plugin: build a pass plugin for the installed "
                   "clang; inlining only.")
@click.option("--llvm-major", type=LLVM_MAJOR, default=19, show_default=True,
              help="Major version of the installed LLVM: 19, with --strategy plugin also 22.")
@click.option("--llvm-source", default="deb", show_default=True, metavar="deb|git:TAG|DIR",
              help="Source of the matching LLVM files: the Debian source package, a tag of llvm-project, or a "
                   "directory.")
@click.option("--policy", "policies", type=ArtifactOr(PRETRAINED), multiple=True, metavar="DIR|URI|pretrained",
              help="release: the policy to embed, or the pretrained ones of this project. Repeat for a policy of "
                   "another problem.")
@click.option("--extra-policy", type=ARTIFACT, metavar="DIR",
              help="release: same as a second --policy, for pipelines.")
@click.option("--embed", type=click.Choice(["cpp", "tf-aot"]), default="cpp", show_default=True,
              help="release: form of the policy to embed: generated C++, or the object of TensorFlow's AOT compiler.")
@click.option("--targets", type=click.Choice(get_args(Targets)), default="native", show_default=True,
              help="Code generators to link.")
@click.option("--sdk", type=_PATH, metavar="DIR", help="Prefix of the LLVM SDK.  [default: the installed one]")
@click.option("--cache", type=_PATH, metavar="DIR",
              help="Directory that caches downloads and objects.  [default: $MLGO_CACHE_DIR or "
                   "~/.cache/mlgo-pipeline]")
@click.option("--jobs", type=JOBS, metavar="N", help="Parallel compiles.  [default: processors]")
def main(policies: tuple[Path | str, ...], extra_policy: Path | None, **arguments: Any) -> None:
    """Build a clang for learned policies: link an installed LLVM SDK with the few source files that use a policy."""
    directories = [place for policy in policies for place in ([policy] if isinstance(policy, Path) else _pretrained())]
    arguments["policies"] = (*directories, extra_policy) if extra_policy else tuple(directories)
    make_toolchain(ToolchainConfig(**{name: value for name, value in arguments.items() if value is not None}))


def _pretrained() -> list[Path]:
    from components.core.policy.pretrained import pretrained_policy, pretrained_problems  # imports NumPy

    return [pretrained_policy(problem) for problem in pretrained_problems()]


if __name__ == "__main__":
    run_step(main)
