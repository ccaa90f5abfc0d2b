"""Command line of `mlgo shrink`."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import click
import msgspec

from components.core.projects.flags.options import PROCESSORS
from components.core.projects.source_tree import SHRINK_FILE, SourceTree
from components.platform.command import run_step
from components.platform.console import say
from components.platform.console.number_types import JOBS, MINUTES
from components.platform.storage import publish
from components.platform.storage.cache import default_cache_dir
from components.platform.storage.options import ARTIFACT, OUTPUT, TREE
from components.platform.storage.shared_state.file_lock import exclusive_lock
from components.shrink.detect import detect_builds
from components.shrink.rows import ASSUMPTIONS, rivals, shrink_rows
from components.shrink.types import Measure


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--source",
    type=TREE,
    default=Path(),
    help="Directory that the build runs in, its URI, or the URL of an archive; it is only read.  [default: the current "
    "one]",
)
@click.option(
    "--release-toolchain",
    type=ARTIFACT,
    help="Release clang with a policy.  [default: that of `make clang`, or one that is built once, in the cache]",
)
@click.option(
    "--check",
    default="",
    metavar="COMMAND",
    help="Shell command that tests what was built, in its directory: a build for which it fails is not delivered.  "
    "[default: the tests that the build system knows; without tests, each program has to do what yours does]",
)
@click.option("--no-check", is_flag=True, help="Check nothing.")
@click.option(
    "--check-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time limit of each build but your own, and of each check.  [default: ten times your own build's or its "
    "check's time, at least 120]",
)
@click.option(
    "--exclude",
    "excluded",
    multiple=True,
    metavar="GLOB",
    help="Files and directories that are not copied (repeatable).",
)
@click.option(
    "--output", type=OUTPUT, default=Path("mlgo-shrink"), show_default=True, help="Directory of the result; replaced."
)
@click.option(
    "--allow",
    "allowed",
    type=click.Choice(list(ASSUMPTIONS)),
    multiple=True,
    help="Also try flags that assume something (repeatable): "
    f"{'; '.join(f'{name}: {assumption}' for name, assumption in ASSUMPTIONS.items())}.",
)
@click.option(
    "--benchmark",
    default="",
    metavar="COMMAND",
    help="Shell command whose speed is compared, in a copy of --source with the linked files at their paths: "
    "instructions (performance counters, or valgrind) and processor time.",
)
@click.option(
    "--max-slowdown",
    type=click.FloatRange(min=0),
    metavar="PERCENT",
    help="Deliver only a build whose --benchmark executes at most so many percent more instructions than by your own, "
    "and also try one that is compiled for size but for what a profile of the benchmark calls hot.",
)
@click.option(
    "--measure",
    type=click.Choice(get_args(Measure)),
    default="loaded",
    show_default=True,
    help="What is minimized: bytes of loaded sections, of the stripped files, or of these compressed by xz.",
)
@click.option(
    "--other-compilers/--no-other-compilers",
    default=True,
    show_default=True,
    help="Also build by the other compilers that you have, for size and with LTO: gcc, and a newer clang.",
)
@click.option(
    "--compare-stock/--no-compare-stock",
    default=True,
    show_default=True,
    help="Build the smallest build's flags by stock clang, too, which tells what the release clang saves.",
)
@click.option(
    "--minutes",
    type=MINUTES,
    default=0,
    show_default=True,
    help="Wall time of a search for better inlining decisions of the smallest build. It goes on when the same command "
    "runs again.",
)
@click.option("--jobs", type=JOBS, default=PROCESSORS, help="Value of $JOBS for the build.  [default: processors]")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def main(
    source: Path,
    release_toolchain: Path | None,
    check: str,
    no_check: bool,
    check_timeout: float | None,
    excluded: tuple[str, ...],
    allowed: tuple[str, ...],
    benchmark: str,
    max_slowdown: float | None,
    measure: Measure,
    other_compilers: bool,
    compare_stock: bool,
    minutes: float,
    output: Path,
    jobs: int,
    command: tuple[str, ...],
) -> None:
    """Build your code by COMMAND with several compilers and flags, and keep the smallest result.

    COMMAND is your build, with its configure step: `make`, `./configure && make`, CMake, Meson, debian/rules; one word
    with spaces is a shell command. Without COMMAND it is detected. Options stand before it.

    It runs in fresh copies of the source: by your own compilers, and by a release clang, which comes first in PATH and
    as CC and CXX, and compiles for size behind the build's own flags: files by themselves, and each program as one
    module. Symbols stay visible; -Oz has to be fast enough. A build that fails, fails its check (the tests of the
    build, or what its programs print) or exports fewer symbols is not used. If nothing is smaller, your own build is
    the result; the exit status is 0.

    The output has the linked files, compilers for your build, shrink.json and summary.md.

    \b
    Examples:
      mlgo shrink
      mlgo shrink -- make -j8
      mlgo shrink --check 'make check' './configure && make -j8'
      mlgo shrink --benchmark './prog <input' --max-slowdown 2 -- make
      mlgo shrink 'cmake -S . -B build && cmake --build build -j8'
      mlgo shrink 'meson setup build && ninja -C build'
      mlgo shrink -- debian/rules build
    """
    # Imported here so that --help does not wait for NumPy.
    from components.core.compiler.own_clangs import release_clang
    from components.core.formats.toolchain import load_toolchain
    from components.shrink.builds.build import UserBuild
    from components.shrink.checks import Checks
    from components.shrink.report import print_shrunk, summary_markdown
    from components.shrink.step import shrink
    from components.shrink.trials import ShrinkConfig

    if check and no_check:
        raise click.UsageError("--check and --no-check exclude each other")
    if max_slowdown is not None and not benchmark:
        raise click.UsageError(
            "--max-slowdown limits the instructions of a benchmark: pass --benchmark COMMAND, which runs your programs"
        )
    tree = SourceTree(source, excluded)
    if len(command) == 1 and any(character.isspace() for character in command[0]):
        command = ("sh", "-c", command[0])
    elif command == ("",):  # of a pipeline whose parameter is empty
        command = ()
    commands = [command]
    if not command and source.is_dir():
        commands = [("sh", "-c", detected) for detected in detect_builds(source)]
        say(f"the build: {commands[0][-1]}")
    tree.check(" ".join(commands[0]))
    release = load_toolchain(release_toolchain or release_clang()).require_mode("release")
    rows = [*shrink_rows(release, allowed), *(rivals(release) if other_compilers else ())]
    _leave_virtual_environment()
    checks = Checks(check, not no_check, check_timeout)
    config = ShrinkConfig(rows, checks, measure, benchmark, compare_stock, minutes, jobs, max_slowdown)
    place = output.absolute()
    with _alone(place), publish(output, "smaller build") as directory:
        builds = [UserBuild(tree, command) for command in commands]
        shrunk = shrink(builds, release, config, place, directory)
        (directory / SHRINK_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(shrunk), indent=1))
        (directory / "summary.md").write_text(summary_markdown(shrunk, place), encoding="utf-8")
    print_shrunk(shrunk, output)


@contextmanager
def _alone(output: Path) -> Iterator[None]:
    """Wait until no other process shrinks into the same directory."""
    locks = default_cache_dir() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(os.fsencode(output.resolve())).hexdigest()[:32]
    with exclusive_lock(locks / f"shrink-{name}", f"waiting for another mlgo shrink into {output}"):
        yield


def _leave_virtual_environment() -> None:
    """Remove our virtual environment from PATH: the Python programs of the build need the system's modules."""
    own = str(Path(sys.prefix) / "bin")
    if sys.prefix != sys.base_prefix:
        os.environ["PATH"] = os.pathsep.join(
            part for part in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.abspath(part) != own
        )
        os.environ.pop("VIRTUAL_ENV", None)


if __name__ == "__main__":
    run_step(main)
