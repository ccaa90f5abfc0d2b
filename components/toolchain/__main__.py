"""The command `python -m components.toolchain`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from components.console import run_step
from components.console.number_types import JOBS, LLVM_MAJOR
from components.formats.policy import PRETRAINED
from components.storage.options import ARTIFACT, OUTPUT, ArtifactOr
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import make_toolchain

_PATH = click.Path(path_type=Path)


# fmt: off
@click.command(
    epilog="""\b
Examples:
  # a clang that makes code smaller today, without any training
  python -m components.toolchain --mode release --policy pretrained --output build/clang
  # a clang that logs decisions and takes policies (about a minute)
  python -m components.toolchain --mode training --output runs/mine/training
  # a clang that carries a trained policy; use it with: clang -Oz -mllvm -enable-ml-inliner=release
  python -m components.toolchain --mode release --policy runs/mine/policy --output runs/mine/release
  # one that carries two: for inlining and, with -mllvm -regalloc-enable-advisor=release, for register allocation
  python -m components.toolchain --mode release --policy runs/mine/policy --policy runs/regalloc/policy \\
    --output runs/both
"""
)
@click.option("--mode", type=click.Choice(["training", "release"]), required=True,
              help="training: logs decisions and loads policies at run time; release: carries one policy.")
@click.option("--output", type=OUTPUT, required=True, metavar="DIR", help="Where the toolchain goes.")
@click.option("--llvm-major", type=LLVM_MAJOR, default=19, show_default=True,
              help="Major version of the installed LLVM SDK to link against.")
@click.option("--llvm-source", default="deb", show_default=True, metavar="deb|git:TAG|DIR",
              help="Where the matching source files come from: the Debian source package, a tag of llvm-project, "
                   "or a directory.")
@click.option("--policy", "policies", type=ArtifactOr(PRETRAINED), multiple=True, metavar="DIR|URI|pretrained",
              help="release: the policy to embed, or those that come with this project. Again for one of another "
                   "problem.")
@click.option("--with-policy", type=ARTIFACT, metavar="DIR",
              help="release: the same as another --policy, for pipelines.")
@click.option("--embed", type=click.Choice(["cpp", "tf-aot"]), default="cpp", show_default=True,
              help="release: which form of the policy: our C++, or the object of TensorFlow's AOT compiler.")
@click.option("--targets", type=click.Choice(["native", "all"]), default="native", show_default=True,
              help="Code generators to link.")
@click.option("--sdk", type=_PATH, metavar="DIR", help="The SDK's prefix.  [default: where it is installed]")
@click.option("--cache", type=_PATH, metavar="DIR",
              help="Keeps downloads and objects for the next time.  [default: $MLGO_CACHE_DIR or "
                   "~/.cache/mlgo-pipeline]")
@click.option("--jobs", type=JOBS, metavar="N", help="Parallel compiles.  [default: processors]")
def main(policies: tuple[Path | str, ...], with_policy: Path | None, **arguments: Any) -> None:
    """Make a clang for learned policies: link an installed LLVM SDK with the few files that look at a policy."""
    named = [place for policy in policies for place in ([policy] if isinstance(policy, Path) else _pretrained())]
    arguments["policies"] = (*named, with_policy) if with_policy else tuple(named)
    make_toolchain(ToolchainConfig(**{name: value for name, value in arguments.items() if value is not None}))


def _pretrained() -> list[Path]:
    from components.policy.pretrained import pretrained_policy, pretrained_problems  # NumPy, only for this

    return [pretrained_policy(problem) for problem in pretrained_problems()]


if __name__ == "__main__":
    run_step(main)
