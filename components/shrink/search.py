"""Searches the inlining decisions of the user's own build, in the time that `mlgo shrink --minutes` gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from components.core.compiler.inline_plan import PLAN_FILE
from components.core.compiler.own_clangs import run_own_step, training_clang
from components.core.projects.compiler_scripts import SCRIPT_DIRECTORY
from components.core.projects.flags.rows import FlagRow
from components.core.projects.link_recorder.recorder import COMPILE_FLAGS, find_lld, link_flags, write_recording_linkers
from components.core.projects.source_tree import remove_tree
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.shared_state.file_lock import exclusive_lock
from components.shrink.builds.build import Builder, Compilers
from components.shrink.builds.built_tree import BuiltTree

_EMBED = ("-Xclang", "-fembed-bitcode=all")
_LEVELS = "^-O[sz]$"


def search_plan(builder: Builder, compilers: Compilers, whole_program: bool, minutes: float, plan: Path) -> Path:
    """Search with `mlgo tune`, and return the file of the plan.

    The search's state is in the cache, so that the next call for the same code goes on from there. The corpus is built
    there, too, because a corpus has paths of its build, and another corpus is another search.

    Args:
        compilers: stock clang, with the flags of the row that is to be built with the plan.
        whole_program: whether the plan has the decisions of programs, each of which is one module, not those of files.
        minutes: wall time of the search, without the build of the corpus.
        plan: directory of the plan, which does not exist.

    Raises:
        UserError: the build fails with bitcode, or the search finds nothing.
    """
    if compilers.bound and whole_program:
        raise UserError(
            "links cannot be recorded where the build calls compilers by their paths", "let the build use $CC and $CXX"
        )
    source = builder.build.source
    training = training_clang()
    place = builder.setup.cache / "shrink" / source.unique_name
    place.mkdir(parents=True, exist_ok=True)
    corpus, work, linked = place / "corpus", place / "build", place / "linked"

    def extract(built: BuiltTree) -> None:
        options: tuple[str | Path, ...] = ("--input", built.root, "--input-type", "directory", "--cmd-filter", _LEVELS)
        if whole_program:
            options = ("--unit", "program", "--input", built.tools, "--obj-base-dir", built.root)
        if not run_own_step("components.corpus", "extract", *options, "--output", corpus):
            raise UserError("the build has no modules to search", "see the message above")

    say(f"building {source.name} with bitcode, for the search")
    with exclusive_lock(place / "lock", f"waiting for another search of {source.directory}"):
        for stale in (work, linked):
            remove_tree(stale)  # of a run that was killed
        work.mkdir()
        at_place = replace(builder, setup=replace(builder.setup, work=work))
        at_place.run("bitcode", _with_bitcode(compilers, whole_program), linked, extract)
        remove_tree(linked)
        inputs = ("--corpus", corpus, "--trust-corpus", "--toolchain", training)
        options = ("--minutes", str(minutes), "--no-usage", "--root-dir", place / "search", "--output", plan)
        if not run_own_step("components.tune", *inputs, *options):
            raise UserError("the search found no plan", "see the message above")
    return plan / PLAN_FILE


def _with_bitcode(compilers: Compilers, whole_program: bool) -> Compilers:
    """Return the compilers with bitcode in their objects or, for whole programs, objects of bitcode and a linker that
    records its links."""
    stock = compilers.variant
    if not whole_program:
        return replace(compilers, records=False, variant=replace(stock, flags=[*stock.flags, *_EMBED]))
    lld = find_lld(stock.clang)

    flags = [*stock.flags, *COMPILE_FLAGS, *link_flags(SCRIPT_DIRECTORY)]
    return replace(
        compilers,
        records=False,
        variant=replace(stock, flags=flags),
        add_tools=lambda tools: write_recording_linkers(tools, lld, stock.flags[0]),
    )


def with_plan(row: FlagRow, plan: Path) -> FlagRow:
    """Return a row that its compiler "plan" builds with the plan in a file."""
    if not row.lto:
        return replace(row, plan=plan)
    # lld takes the plan of a program. Not by -Wl, which splits at commas.
    option = ("-Xlinker", "-mllvm", "-Xlinker", f"-mlgo-inline-plan={plan}")
    return replace(row, link_flags=(*row.link_flags, *option))
