"""Builds the projects of recipes with embedded bitcode and extracts them all into one corpus."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from components.console import Progress, UserError, say
from components.corpus.debian import DebianConfig, build_packages
from components.corpus.extract import ExtractConfig, extract_objects
from components.corpus.objects import from_compile_commands
from components.corpus.outcome import EXTRACTED, Outcome
from components.corpus.profiles import bring_profiles
from components.corpus.report import COMPILE_FAILED, NO_OUTPUT, Report, join_reports, make_report
from components.formats.corpus import write_description
from components.projects.build import BuiltProject, build_project, configure_project
from components.projects.debian.package import DebianBuild
from components.projects.process import stop_running
from components.projects.recipe import Recipe
from components.projects.source import fetch_recipe

EMBED = ["-Xclang", "-fembed-bitcode=all"]


@dataclass(frozen=True)
class BuildConfig:
    """How the projects are built.

    clang: the C compiler, a path. level: the optimization level ("-Oz") that every module must really be compiled
    with. jobs: compiles at a time. cache: where downloads are kept. work: an empty directory for the builds. package:
    how Debian packages are built. retry_failed: build those again that failed before.
    """

    clang: Path
    work: Path
    cache: Path
    level: str
    jobs: int = 2
    package: DebianBuild = field(default_factory=DebianBuild)
    retry_failed: bool = False


def build_corpus(recipes: tuple[Recipe, ...], output: Path, config: BuildConfig) -> Report:
    """Build every project and write the corpus of all their modules, without splits, to the directory `output`.

    While one project compiles, the next is fetched and configured. Raises `UserError` if a project cannot be
    fetched, configured or built, or yields no module at all; of Debian packages, if all of them do.
    """
    packages = [recipe for recipe in recipes if recipe.debian]
    recipes = tuple(recipe for recipe in recipes if not recipe.debian)
    names: list[str] = []
    reports: list[Report] = []
    if packages:
        build = dataclasses.replace(config.package, jobs=config.jobs)
        debian = DebianConfig(build, config.level, tuple(EMBED), config.cache, config.retry_failed)
        built_names, report = build_packages(packages, output, debian)
        names += built_names
        reports.append(report)
    with ThreadPoolExecutor(1, thread_name_prefix="prepare") as pool:
        prepared: list[Future[Path]] = [pool.submit(_prepare, recipe, config) for recipe in recipes]
        try:
            for recipe, future in zip(recipes, prepared, strict=True):
                source = future.result()
                built = _build(recipe, source, config, lambda: _raise_failed(prepared))
                outcomes, report = _extract(recipe, built, output, config)
                extracted = [o.object for o in outcomes if o.kind == EXTRACTED]
                bring_profiles(output, [item.name for item in extracted], {i.name: i.directory for i in extracted})
                names += [item.name for item in extracted]
                reports.append(report)
                shutil.rmtree(config.work / recipe.name, ignore_errors=True)
        except BaseException:
            for future in prepared:
                future.cancel()
            stop_running()
            raise
    write_description(output, names)
    return join_reports(reports)


def _raise_failed(prepared: Sequence[Future[Path]]) -> None:
    """Raises what stopped a later project's preparation: nobody is to wait for the builds before it to hear of it."""
    for future in prepared:
        if future.done() and not future.cancelled():
            future.result()


def _prepare(recipe: Recipe, config: BuildConfig) -> Path:
    # The source lies inside the build directory: CMake then spells paths relative to it, and modules do not depend
    # on where they were built.
    build_dir = config.work / recipe.name
    _log(recipe, config).unlink(missing_ok=True)
    source = fetch_recipe(recipe, build_dir, config.cache)
    configure_project(recipe, source, build_dir, config.clang, _flags(config), _log(recipe, config))
    return source


def _log(recipe: Recipe, config: BuildConfig) -> Path:
    """Outside of the build directory, which is gone when the user reads the error."""
    folder = config.cache / "logs"
    folder.mkdir(exist_ok=True)
    return folder / f"{recipe.name}.log"


def _flags(config: BuildConfig) -> list[str]:
    return [*EMBED, config.level]


def _build(recipe: Recipe, source: Path, config: BuildConfig, check: Callable[[], None]) -> BuiltProject:
    """Compiles the project's objects; calls `check` after each."""
    progress: Progress | None = None

    def on_progress(done: int, total: int) -> None:
        nonlocal progress
        if progress is None:
            progress = Progress(f"compiling {recipe.name}", total).__enter__()
        progress.advance(max(0, done - progress.done))
        check()

    try:
        return build_project(
            recipe, source, config.work / recipe.name, config.clang, _flags(config), config.jobs, on_progress,
            objects_only=True, log=_log(recipe, config),
        )  # fmt: skip
    finally:
        if progress is not None:
            progress.__exit__(None, None, None)


def _extract(
    recipe: Recipe, built: BuiltProject, output: Path, config: BuildConfig
) -> tuple[list[Outcome], Report]:
    objects, without_output = from_compile_commands(built.compile_commands, built.directory)
    objects = [dataclasses.replace(item, name=f"{recipe.name}/{item.name}") for item in objects]
    failed = set(built.failed)
    compiled = [item for item in objects if item.name.split("/", 1)[1] not in failed]
    # A project that overrides the level would spoil the comparison at it: its modules are filtered and reported.
    extract = ExtractConfig(cmd_filter=f"^{config.level}$", num_workers=config.jobs)
    outcomes = extract_objects(compiled, output, extract)
    other = [(name, NO_OUTPUT, "no -o in its command") for name in without_output]
    other += [(name, COMPILE_FAILED, f"the compiler's message is in {built.log}") for name in built.failed]
    report = make_report(recipe.name, outcomes, other)
    say(f"{recipe.name}: {report.line()}")
    if not any(outcome.kind == EXTRACTED for outcome in outcomes):
        details = "\n".join(report.examples())
        raise UserError(f"{recipe.name} yields no module: {report.line()}\n{details}", "correct its recipe")
    return outcomes, report
