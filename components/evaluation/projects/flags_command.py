"""The command `mlgo evaluation flags`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from components.core.projects.flags.options import program_options
from components.evaluation.metrics_types import encode_json
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.options import ARTIFACT, OUTPUT
from components.platform.storage.uri import display_path

if TYPE_CHECKING:
    from components.core.projects.flags.request import RowsRequest


@click.command("flags")
@program_options()
@click.option("--release-toolchain", type=ARTIFACT, required=True, help="Release clang that embeds the policy.")
@click.option("--plan", type=ARTIFACT, help="Plan of `mlgo tune`: also build with the release clang and this plan.")
@click.option("--output", type=OUTPUT, required=True, help="Directory for flags.csv and flags.json.")
def flags(release_toolchain: Path, plan: Path | None, output: Path, request: RowsRequest | None) -> None:
    """Build programs under rows of flags that make them smaller, with stock clang and with the release clang, and show
    what each row gives, the best row of stock clang, the best of all, and the line to put into the build.

    \b
    Each row adds to the one before it, until LTO:
      default                 your build at -Oz
      hidden                  -fvisibility=hidden, sections, --gc-sections
      icf-safe, icf-all       the same and lld's identical code folding
      relr, layout            packed relocations, less padding, one hash table, no build ID
      no-unwind-tables        with --allow
      no-pie                  with --allow
      outliner                LLVM's machine outliner
      thinlto, lto            link-time optimization by LLVM's pipelines, full LTO also with the outliner
      program                 full LTO by the release clang's own pipeline, where it has one
      smallest, program-smallest   the smallest of several variants, where it has -mlgo-keep-smaller
      *-experimental          with --experimental: the smallest of more variants

    Sizes are those of the file after llvm-strip. A row that does not build is listed with the reason.

    \b
    Example: your own build, and the programs of a recipe
      mlgo evaluation flags --build 'cmake -S . -B build && cmake --build build' --source . --exclude build \\
          --program build/app --release-toolchain build/clang --output runs/flags
      mlgo evaluation flags --recipe ninja --release-toolchain runs/demo/release --output runs/flags
      mlgo evaluation flags --recipe ninja --row icf-all --row lto --release-toolchain runs/demo/release \\
          --output runs/flags
    """
    from components.core.compiler.inline_plan import require_plan
    from components.core.formats.toolchain import load_toolchain
    from components.core.projects.flags.compare import flags_csv
    from components.evaluation.report.terminal_report import print_flags
    from components.platform.storage import publish

    if request is None:
        raise UserError("exactly one of --recipe and --build names what is built", "see mlgo evaluation flags --help")
    release = load_toolchain(release_toolchain).require_mode("release")
    request.check(release)
    plan_file = require_plan(plan) if plan else None
    with publish(output, "comparison of flags") as directory:
        compared = request.compare(release, directory / "build", plan_file)
        (directory / "flags.json").write_text(encode_json(compared), encoding="utf-8")
        (directory / "flags.csv").write_text(flags_csv(compared), encoding="utf-8")
    print_flags(compared)
    say(f"every program and row: {display_path(output / 'flags.csv')}")
