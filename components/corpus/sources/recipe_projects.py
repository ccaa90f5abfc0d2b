"""Builds the projects of recipes with embedded bitcode and extracts their modules into one corpus."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from components.core.formats.corpus import write_description
from components.core.projects.build import BuiltProject, build_progress, build_project, configure_project
from components.core.projects.link_recorder.recorder import (
    COMPILE_FLAGS,
    LINKS,
    find_lld,
    link_flags,
    read_links,
    write_recorder,
)
from components.core.projects.recipe import Recipe
from components.core.projects.source import fetch_recipe
from components.corpus.extraction.extract import ExtractConfig, extract_objects
from components.corpus.extraction.outcome import Outcome
from components.corpus.outcome_kind import OutcomeKind
from components.corpus.profiles import copy_profiles
from components.corpus.report import CorpusReport, join_reports, make_report
from components.corpus.sources.build_config import EMBED, BuildConfig
from components.corpus.sources.debian_packages import build_packages
from components.corpus.sources.objects import Left, read_compile_commands
from components.corpus.sources.programs import ProgramConfig, announce_programs, extract_programs
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.processes.build_tools import stop_running


def build_corpus(recipes: tuple[Recipe, ...], output: Path, config: BuildConfig) -> CorpusReport:
    """Build every project and write the corpus of all their modules, without splits, to the directory `output`.

    While one project compiles, the next ones are fetched and configured.

    Raises:
        UserError: a project cannot be fetched, configured or built, or yields no module; for Debian packages, only if
            this holds for all of them. Projects without programs are left out if the unit is a program, unless this
            holds for all of them.
    """
    packages = [recipe for recipe in recipes if recipe.debian]
    recipes = tuple(recipe for recipe in recipes if not recipe.debian)
    names: list[str] = []
    reports: list[CorpusReport] = []
    if packages:
        built_names, report = build_packages(packages, output, config)
        names += built_names
        reports.append(report)
    with ThreadPoolExecutor(1, thread_name_prefix="prepare") as pool:
        prepared: list[Future[Path]] = [pool.submit(_prepare, recipe, config) for recipe in recipes]
        try:
            for recipe, future in zip(recipes, prepared, strict=True):
                source = future.result()
                built = _build(recipe, source, config, prepared)
                outcomes, report = (_extract if config.unit == "object" else _extract_linked)(
                    recipe, built, output, config
                )
                extracted = [o.object for o in outcomes if o.kind == OutcomeKind.EXTRACTED]
                copy_profiles(output, [item.name for item in extracted], {i.name: i.directory for i in extracted})
                names += [item.name for item in extracted]
                reports.append(report)
                shutil.rmtree(config.work / recipe.name, ignore_errors=True)
        except BaseException:
            stop_running(prepared)
            raise
    if not names:
        raise UserError("none of the projects has a program", "pass --unit object, or other recipes")
    write_description(output, names)
    return join_reports(reports)


def _prepare(recipe: Recipe, config: BuildConfig) -> Path:
    # The source lies inside the build directory: CMake then uses relative paths, and modules do not depend on the
    # directory that they were built in.
    build_dir = config.work / recipe.name
    _log_path(recipe, config).unlink(missing_ok=True)
    source = fetch_recipe(recipe, build_dir, config.cache)
    if config.unit == "program":
        recorder = _recorder(recipe, config)
        recorder.mkdir()
        write_recorder(recorder, find_lld(config.clang), recorder / LINKS, config.level)
        (recorder / LINKS).mkdir()
    log, ldflags = _log_path(recipe, config), _link_flags(recipe, config)
    configure_project(recipe, source, build_dir, config.clang, _flags(config), log, ldflags)
    return source


def _recorder(recipe: Recipe, config: BuildConfig) -> Path:
    """Return the directory of the script that records the project's links."""
    return config.work / f".{recipe.name}-recorder"


def _log_path(recipe: Recipe, config: BuildConfig) -> Path:
    """Return the path of the project's log, outside of the build directory, which is removed after an error."""
    folder = config.cache / "logs"
    folder.mkdir(exist_ok=True)
    return folder / f"{recipe.name}.log"


def _flags(config: BuildConfig) -> list[str]:
    return [*(EMBED if config.unit == "object" else COMPILE_FLAGS), config.level]


def _link_flags(recipe: Recipe, config: BuildConfig) -> list[str]:
    return link_flags(str(_recorder(recipe, config))) if config.unit == "program" else []


def _build(recipe: Recipe, source: Path, config: BuildConfig, prepared: Sequence[Future[Path]]) -> BuiltProject:
    """Compile the project's objects; raise the error of a failed preparation of a later one early."""
    with build_progress(f"compiling {recipe.name}") as show:

        def on_progress(done: int, total: int) -> None:
            show(done, total)
            for future in prepared:
                if future.done() and not future.cancelled():
                    future.result()

        return build_project(
            recipe,
            source,
            config.work / recipe.name,
            config.clang,
            _flags(config),
            config.jobs,
            on_progress,
            objects_only=config.unit == "object",
            log=_log_path(recipe, config),
            ldflags=_link_flags(recipe, config),
        )


def _list_failed(built: BuiltProject) -> Left:
    return [(name, OutcomeKind.COMPILE_FAILED, f"see the compiler's message in {built.log}") for name in built.failed]


def _extract(
    recipe: Recipe, built: BuiltProject, output: Path, config: BuildConfig
) -> tuple[list[Outcome], CorpusReport]:
    objects, left = read_compile_commands(built.compile_commands, built.directory)
    objects = [dataclasses.replace(item, name=f"{recipe.name}/{item.name}") for item in objects]
    failed = set(built.failed)
    compiled = [item for item in objects if item.name.split("/", 1)[1] not in failed]
    # Modules of a project that overrides the level would distort comparisons at this level: skip and report them.
    extract = ExtractConfig(cmd_filter=f"^{config.level}$", num_workers=config.jobs)
    outcomes = extract_objects(compiled, output, extract)
    report = make_report(recipe.name, outcomes, [*left, *_list_failed(built)])
    say(f"{recipe.name}: {report.line()}")
    if not any(outcome.kind == OutcomeKind.EXTRACTED for outcome in outcomes):
        details = "\n".join(report.examples())
        raise UserError(f"{recipe.name} yields no module: {report.line()}\n{details}", "correct its recipe")
    return outcomes, report


def _extract_linked(
    recipe: Recipe, built: BuiltProject, output: Path, config: BuildConfig
) -> tuple[list[Outcome], CorpusReport]:
    """Extract the programs and shared libraries that the recipe names, all that were linked if it names none."""
    recorder = _recorder(recipe, config)
    links = read_links(recorder) if any((recorder / LINKS).iterdir()) else []
    only = frozenset(map(str, built.binaries)) if recipe.binaries else None
    programs = extract_programs(links, output, ProgramConfig(only=only), built.directory, f"{recipe.name}/")
    report = make_report(recipe.name, programs.outcomes, _list_failed(built), programs.shared_functions)
    say(f"{recipe.name}: {report.line() if links else 'it links no program'}")
    announce_programs(programs)
    shutil.rmtree(recorder, ignore_errors=True)
    return programs.outcomes, report
