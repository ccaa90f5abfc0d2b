"""Searches the inlining decisions of the user's own build, in the time that `mlgo shrink --minutes` gives."""

from __future__ import annotations

from pathlib import Path

from components.core.compiler.inline_plan import PLAN_FILE
from components.core.compiler.own_clangs import run_own_step, training_clang
from components.core.formats.toolchain import Toolchain
from components.core.projects.flags.build_variants import BuildVariant
from components.core.projects.flags.builds import BuildSetup
from components.core.projects.flags.rows import FlagRow
from components.platform.console import say
from components.platform.errors import UserError
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
    work: Path,
) -> Path:
    """Search with `mlgo tune`, from the pretrained policy, and return the plan.

    The search's state is in the cache, so that the next call for the same code and time goes on from there.

    Args:
        row: the row that compiles the build's files; the plan has the decisions of these.
        bound, omitted: see `UserBuild.build`.
        minutes: wall time of the search, without the build of the corpus.
        work: directory of the corpus and the plan.

    Raises:
        UserError: the build fails with embedded bitcode, or the search finds nothing.
    """
    training = training_clang()
    corpus, plan = work / "corpus", work / "plan"

    def extract(tree: Path) -> None:
        options = ("--input", tree, "--input-type", "directory", "--cmd-filter", _LEVELS, "--output", corpus)
        if not run_own_step("components.corpus", "extract", *options):
            raise UserError("the build has no modules to search", "see the message above")

    variant = row.variant("stock", stock, release)
    embedding = BuildVariant("clang with bitcode", variant.clang, [*variant.flags, *_EMBED], variant.link_flags)
    say(f"building {build.source.name} with bitcode, for the search")
    build.build("bitcode", embedding, setup, work / "bitcode", omitted, bound, then=extract)
    state = setup.cache / "shrink" / build.source.unique_name
    options = ("--corpus", corpus, "--toolchain", training, "--minutes", str(minutes), "--root-dir", state)
    if not run_own_step("components.tune", *options, "--output", plan):
        raise UserError("the search found no plan", "see the message above")
    return plan / PLAN_FILE
