"""Delivers the smallest build of the user's code that works, and says how to build it."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from components.core.compiler.inline_plan import PLAN_FILE
from components.core.formats.toolchain import Toolchain
from components.core.objectives.size import reduction_percent
from components.core.projects.flags.build_variants import find_stock_clang
from components.core.projects.flags.builds import BuildSetup, find_binutils
from components.core.projects.source_tree import SHRINK_FILE, remove_tree
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.cache import default_cache_dir
from components.platform.storage.shared_state.stale_directories import lock_shared, remove_stale
from components.shrink.builds.bound_compilers import WRAPPER
from components.shrink.builds.build import Builder, Compilers, UserBuild
from components.shrink.builds.kept_files import copy_with_links
from components.shrink.notes import note_privileges, notes_on
from components.shrink.rows import OWN
from components.shrink.search import with_plan
from components.shrink.trials import COMPILERS, ShrinkConfig, Trial, Trials
from components.shrink.types import Measure, ShrinkReport

FILES = "files"
"""Directory of the output: what the delivered build linked."""
_PREFIX, _MIN_AGE_S = "mlgo-shrink-", 60.0
"""Start of the names of work directories, and the age after which one without a lock is of a run that was killed."""


def shrink(
    builds: Sequence[UserBuild], release: Toolchain, config: ShrinkConfig, output: Path, directory: Path
) -> ShrinkReport:
    """Build the user's code by the user's compilers and by those of each row, and keep the smallest result.

    A row that does not build, whose check fails, or whose files export less than those of the user's own build is not
    used. If none is smaller, the user's own build is the result.

    Args:
        builds: the user's build; of several, the first that works by the user's own compilers.
        output: the published directory, which messages name; it is not copied.
        directory: its directory until then; gets COMPILERS and FILES.

    Raises:
        UserError: the user's own build, check or benchmark fails, the compilers are missing, or the disk is full.
    """
    build, *others = builds
    _refuse_own_compilers(os.environ.get("PATH", os.defpath))
    stock = find_stock_clang(release, None)
    binutils = find_binutils(stock)
    if left_out := build.source.build_directories():
        say(
            f"left out of the copy, with their options: {', '.join(left_out[:5])}, configured for other compilers; "
            "pass a command that configures if the options matter"
        )
    if os.pathsep in str(output):
        raise UserError(f"--output {output} has a colon, which PATH cannot hold", "choose another directory")
    work, lock = _make_work()
    try:
        setup = BuildSetup(work / "build", default_cache_dir(), config.jobs, binutils)
        setup.work.mkdir()
        builder = Builder(build, setup, (output, directory, work), stock, compress=config.measure == "compressed")
        trials = Trials(builder, stock, release, work, output, config, others=others)
        trials.run()
        report = _deliver(trials, directory)
        if config.benchmark and report.chosen != OWN:
            report.speed = trials.benchmark().compare(work / OWN, work / report.chosen)
        return report
    finally:
        remove_tree(work)
        os.close(lock)


def _make_work() -> tuple[Path, int]:
    """Make the directory of all builds, and return it and a descriptor that holds its lock. Those of runs that were
    killed are removed. UserError if TMPDIR is relative, or has a colon.
    """
    if not os.path.isabs(os.environ.get("TMPDIR") or os.sep):
        raise UserError(
            f"TMPDIR={os.environ['TMPDIR']} is relative: it is another directory for each program of a build",
            "set it to an absolute path",
        )
    if os.pathsep in tempfile.gettempdir():
        raise UserError(
            f"the directory of temporary files, {tempfile.gettempdir()}, has a colon, which PATH cannot hold",
            "set TMPDIR to another one",
        )
    while True:
        remove_stale(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"), _MIN_AGE_S)
        work = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()  # as the programs of a build see it
        if (lock := lock_shared(work)) is not None:
            return work, lock


def _refuse_own_compilers(path: str) -> None:
    """Raise UserError if PATH has the compilers of an earlier result, which would make the user's own build."""
    for directory in path.split(os.pathsep):
        if os.path.isfile(os.path.join(os.path.dirname(directory), SHRINK_FILE)):
            raise UserError(
                f"{directory}, the compilers of an earlier mlgo shrink, is in PATH",
                "run it in a shell without them: CC, CXX and PATH as they were",
            )


def _deliver(trials: Trials, directory: Path) -> ShrinkReport:
    """Write the files of the smallest build, and its compilers, into the output, and report all builds."""
    build, own, chosen = trials.builder.build, trials.own, trials.smallest()
    measure = trials.config.measure
    assert chosen.built is not None
    copy_with_links(trials.work / chosen.entry.name, directory / FILES)
    compilers = chosen.built.compilers
    if compilers is not None:
        _deliver_compilers(directory, compilers, chosen, trials)
    wrapper = [str(trials.output / COMPILERS / WRAPPER)] if compilers is not None and compilers.bound else []
    return ShrinkReport(
        command=build.shown,
        rebuild=shlex.join([*wrapper, *build.command]) if wrapper else build.shown,
        check=trials.config.checks.command,
        checked=trials.config.checks.describe(),
        chosen=chosen.entry.name,
        measure=measure,
        reduction_percent=reduction_percent(trials.done[0].entry.by(measure), chosen.entry.by(measure)) or 0.0,
        kinds={name: file.kind for name, file in chosen.built.files.items()},
        builds=[one.entry for one in trials.done],
        why="" if chosen.built is not own else _why_nothing(trials.done, measure),
        notes=[*notes_on(own, chosen.built), *note_privileges(directory / FILES)],
        max_slowdown=trials.config.max_slowdown,
    )


def _deliver_compilers(directory: Path, compilers: Compilers, chosen: Trial, trials: Trials) -> None:
    """Write the compilers of a build, and its plan or profile if it has one, into the output."""
    if chosen.plan is not None and chosen.row is not None:
        shutil.copyfile(chosen.plan, directory / PLAN_FILE)
        published = with_plan(chosen.row, trials.output / PLAN_FILE)
        compilers = replace(compilers, variant=published.variant("plan", trials.stock, trials.release))
    if chosen.profile is not None and chosen.row is not None:
        source = trials.builder.build.source.directory.resolve()
        published = chosen.profile.deliver(chosen.row, directory, trials.output, source)
        compilers = replace(compilers, variant=published.variant(chosen.profile.compiler, trials.stock, trials.release))
    compilers.write(directory / COMPILERS, trials.builder.setup, trials.output / COMPILERS)


def _why_nothing(tries: list[Trial], measure: Measure) -> str:
    own, *others = tries
    if failed := [one.entry for one in others if one.built is None]:
        names: dict[str, list[str]] = {}
        for entry in failed:
            names.setdefault(entry.failure, []).append(entry.name)
        reasons = "; ".join(f"{', '.join(builds)}: {reason}" for reason, builds in names.items())
        if len(failed) == len(others):
            return f"no other build can be used: {reasons}"
    smallest = min(one.entry.by(measure) for one in others if one.built is not None)
    return (
        f"your build is the smallest: {own.entry.by(measure):,} bytes, the best of the others {smallest:,}. It may be "
        "compiled for size and linked as one program already"
    )
