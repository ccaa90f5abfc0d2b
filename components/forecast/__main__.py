"""Command line of `mlgo forecast`."""

from __future__ import annotations

from pathlib import Path

import click

from components.core.projects.flags.options import PROCESSORS
from components.core.projects.option import COMPILE_COMMANDS, CORPUS, TRUST_CORPUS
from components.platform.command import run_step
from components.platform.console.number_types import JOBS, SEED, TIMEOUT_S
from components.platform.errors import UserError
from components.platform.storage.options import ARTIFACT
from components.platform.storage.output_files import replace_text, require_writable


@click.command()
@click.option(
    "--compile-commands",
    type=COMPILE_COMMANDS,
    help="compile_commands.json of a configured build by any compiler whose options clang takes, or its directory.",
)
@click.option("--corpus", type=CORPUS, help="Instead: a corpus, of which the modules at -Os and -Oz are compiled.")
@TRUST_CORPUS
@click.option(
    "--release-toolchain",
    type=ARTIFACT,
    help="Release clang with a policy.  [default: that of `make clang`, or one that is built once, in the cache]",
)
@click.option("--stock-clang", type=click.Path(path_type=Path), help="Stock clang of its version.  [default: clang-19]")
@click.option(
    "--seconds",
    type=TIMEOUT_S,
    default=60.0,
    show_default=True,
    help="Time for compiles: a random sample of the modules is compiled if it is too short for all.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed that selects the sample.")
@click.option("--jobs", type=JOBS, default=PROCESSORS, help="Compiles at a time.  [default: processors]")
@click.option("--json", "document", type=click.Path(path_type=Path, dir_okay=False), help="File for the figures.")
def main(
    compile_commands: Path | None,
    corpus: Path | None,
    release_toolchain: Path | None,
    stock_clang: Path | None,
    seconds: float,
    seed: int,
    jobs: int,
    document: Path | None,
) -> None:
    """Estimate how much smaller a program gets by the pretrained policy, in a minute and without training.

    Modules are compiled at -Oz by stock clang and by the release clang, and linked without the program's build, so that
    inline functions, which each object has, count once: in each program and shared library if ninja's or CMake's files,
    or the compilers of mlgo corpus compilers, say how the build links, else together. Nothing is written to the build.
    The last lines say what to do.

    \b
    Examples:
      mlgo forecast --compile-commands build
      mlgo forecast --compile-commands build/compile_commands.json --seconds 20 --json forecast.json
      mlgo forecast --corpus runs/demo/corpus --release-toolchain runs/demo/release
    """
    # Imported here so that --help does not wait for NumPy.
    import msgspec

    from components.core.compiler.own_clangs import release_clang
    from components.core.formats.toolchain import load_toolchain
    from components.forecast.linked_files import BuildFiles, find_linked_files
    from components.forecast.report import print_forecast
    from components.forecast.step import forecast
    from components.forecast.units import Unit, corpus_units, source_units

    if document is not None:
        require_writable(document, "--json")
    if compile_commands is not None and corpus is None:
        sources = source_units(compile_commands)
        units, links = list[Unit](sources), find_linked_files(sources, compile_commands)
    elif corpus is not None and compile_commands is None:
        units, links = corpus_units(corpus), BuildFiles()
    else:
        raise UserError("exactly one input is needed", "pass --compile-commands FILE, or --corpus DIR")
    release = load_toolchain(release_toolchain or release_clang()).require_mode("release")
    result = forecast(units, links, release, stock_clang, seconds, jobs, seed)
    print_forecast(result)
    if document is not None:
        replace_text(document, msgspec.json.format(msgspec.json.encode(result), indent=1).decode())


if __name__ == "__main__":
    run_step(main)
