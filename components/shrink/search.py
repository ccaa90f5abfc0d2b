"""Searches the inlining decisions of the user's own build, in the time that `mlgo shrink --minutes` gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from components.core.compiler.inline_plan import PLAN_FILE
from components.core.compiler.own_clangs import run_own_step, training_clang
from components.core.formats.toolchain import Toolchain
from components.core.projects.compiler_scripts import SCRIPT_DIRECTORY
from components.core.projects.flags.build_variants import BuildVariant
from components.core.projects.flags.builds import BuildSetup
from components.core.projects.flags.rows import FlagRow
from components.core.projects.link_recorder.recorder import (
    COMPILE_FLAGS,
    find_lld,
    link_flags,
    write_recording_linkers,
)
from components.core.projects.source_tree import remove_tree
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.shared_state.file_lock import exclusive_lock
from components.shrink.build import UserBuild

_EMBED = ("-Xclang", "-fembed-bitcode=all")
_LEVELS = "^-O[sz]$"


def search_plan(
    build: UserBuild,
    row: FlagRow,
    bound: bool,
    stock: Path,
    release: Toolchain,
    setup: BuildSetup,
    omitted: tuple[Path, ...],
    minutes: float,
    plan: Path,
) -> Path:
    """Search with `mlgo tune`, and return the file of the plan.

    The plan has the decisions of files or, if the row compiles each program as one module, of programs. The search's
    state is in the cache, so that the next call for the same code goes on from there. The corpus is built there, too,
    because a corpus has paths of its build, and another corpus is another search.

    Args:
        row: the row that is to be built with the plan.
        bound, omitted: see `UserBuild.build`.
        minutes: wall time of the search, without the build of the corpus.
        plan: directory of the plan, which does not exist.

    Raises:
        UserError: the build fails with bitcode, or the search finds nothing.
    """
    if bound and row.lto:
        raise UserError(
            "links cannot be recorded where the build calls compilers by their paths", "let the build use $CC and $CXX"
        )
    training = training_clang()
    place = setup.cache / "shrink" / build.source.unique_name
    place.mkdir(parents=True, exist_ok=True)
    corpus, work = place / "corpus", place / "build"

    def extract(tree: Path, tools: Path) -> None:
        options: tuple[str | Path, ...] = ("--input", tree, "--input-type", "directory", "--cmd-filter", _LEVELS)
        if row.lto:
            options = ("--unit", "program", "--input", tools, "--obj-base-dir", tree)
        if not run_own_step("components.corpus", "extract", *options, "--output", corpus):
            raise UserError("the build has no modules to search", "see the message above")

    of_row = row.variant("stock", stock, release)
    prepare: Callable[[Path], None] | None = None
    more: tuple[str, ...] = _EMBED
    if row.lto:
        lld = find_lld(of_row.clang)
        more = (*COMPILE_FLAGS, *link_flags(SCRIPT_DIRECTORY))

        def prepare(tools: Path) -> None:
            write_recording_linkers(tools, lld, of_row.flags[0])

    variant = BuildVariant("clang with bitcode", of_row.clang, [*of_row.flags, *more], of_row.link_flags)
    say(f"building {build.source.name} with bitcode, for the search")
    with exclusive_lock(place / "lock", f"waiting for another search of {build.source.directory}"):
        for stale in (work, place / "linked"):
            remove_tree(stale)  # of a run that was killed
        work.mkdir()
        at_place = replace(setup, work=work)
        build.build("bitcode", variant, at_place, place / "linked", omitted, bound, prepare, extract)
        remove_tree(place / "linked")
        options = ("--corpus", corpus, "--toolchain", training, "--minutes", str(minutes), "--no-usage")
        if not run_own_step("components.tune", *options, "--root-dir", place / "search", "--output", plan):
            raise UserError("the search found no plan", "see the message above")
    return plan / PLAN_FILE


def with_plan(row: FlagRow, plan: Path) -> FlagRow:
    """Return a row that its compiler "plan" builds with the plan in a file."""
    if not row.lto:
        return replace(row, plan=plan)
    # lld takes the plan of a program. Not by -Wl, which splits at commas.
    option = ("-Xlinker", "-mllvm", "-Xlinker", f"-mlgo-inline-plan={plan}")
    return replace(row, link_flags=(*row.link_flags, *option))
