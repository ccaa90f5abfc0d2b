"""Corpora of Debian source packages: each is built by its own rules, and one that fails is left out.

The modules of each package are kept below the cache directory once it is built, or why it could not be: who builds the
same set again goes on where it ended. A build that failed is tried again only on demand.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from components.console import Progress, UserError, say
from components.corpus.duplicates import function_digests
from components.corpus.extract import ExtractConfig, extract_objects
from components.corpus.objects import ObjectFile
from components.corpus.outcome import EXTRACTED
from components.corpus.report import DUPLICATE, NO_FUNCTIONS, PACKAGE_FAILED, Left, Report
from components.projects.build import excluded
from components.projects.debian.package import SOURCE, WORK, DebianBuild, base_root, build_package
from components.projects.process import stop_running
from components.projects.recipe import Recipe
from components.storage.orphans import remove_orphans

RESULT = "package.json"
_FORMAT = 1
_AT_ONCE = 2
"""Packages: one compiles while another is configured or its dependencies are installed."""


@dataclass(frozen=True)
class PackageModules:
    """What a package gave.

    Attributes:
        version: of the source package.
        failure: why there are no modules, "" if there are.
        modules: name in the corpus -> digest of its functions.
        left: objects that gave no module: name, kind and detail, see report.py.
    """

    version: str
    failure: str
    modules: dict[str, str]
    left: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class DebianConfig:
    """How packages become modules.

    Attributes:
        build: without flags.
        level: of optimization, at which everything is compiled ("-Oz").
        flags: for every object, such as those that embed bitcode.
        cache: the root, and what is finished.
        retry_failed: build packages again that failed before.
    """

    build: DebianBuild
    level: str
    flags: tuple[str, ...]
    cache: Path
    retry_failed: bool = False


def build_packages(recipes: Sequence[Recipe], output: Path, config: DebianConfig) -> tuple[list[str], Report]:
    """Build packages and copy their distinct modules to `output`.

    A module whose functions all equal those of another module that comes before it, in the recipes' order, is left
    out: libraries compile their sources twice, and packages bring copies of others along.

    Returns:
        The modules' names, and what became of every object.

    Raises:
        UserError: the root cannot be made, or no package gave a module.
    """
    base = base_root(config.cache, config.build.clang_major)
    kept = config.cache.absolute() / "debian" / "packages" / f"{base.name}{config.level}"
    kept.mkdir(parents=True, exist_ok=True)
    remove_orphans(base.parent.glob(f"{WORK}*"))
    found: dict[str, PackageModules] = {}
    with Progress("building Debian packages", len(recipes)) as progress, ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = {pool.submit(_package, recipe, kept, base, config): recipe for recipe in recipes}
        try:
            for future in as_completed(futures):
                recipe, package = futures[future], future.result()
                found[recipe.name] = package
                if package.failure:
                    say(f"{recipe.name} is left out: {package.failure}")
                progress.advance(modules=sum(len(package.modules) for package in found.values()))
        except BaseException:
            for future in futures:
                future.cancel()
            stop_running()
            raise
    names, report = _copy_distinct(recipes, found, kept, output)
    if not names:
        raise UserError(f"none of {len(recipes)} packages gave a module", f"see the logs in {_logs(config)}")
    return names, report


def _package(recipe: Recipe, kept: Path, base: Path, config: DebianConfig) -> PackageModules:
    """What the package gives, built unless it was before."""
    folder = kept / _kept_as(recipe)
    package = _read(folder)
    again = recipe.source.kind == "path" or (config.retry_failed and package and package.failure)
    if package is not None and not again:
        return package
    log = _logs(config) / f"{recipe.name}.log"
    build = dataclasses.replace(config.build, compile_flags=(config.level,), object_flags=config.flags)
    with build_package(recipe, base, build, "objects", log) as built:
        failed = PackageModules(built.version, f"{built.failure} ({log})", {}, ())
        if not built.lasting:
            return failed
        partial = built.work / "modules"
        partial.mkdir()
        package = failed if built.failure else _extract(recipe, built.version, built.objects, partial, config, log)
        (partial / RESULT).write_text(json.dumps({"format": _FORMAT, **asdict(package)}, indent=1) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another build of the same package was quicker
            partial.rename(folder)
    return package


def _extract(
    recipe: Recipe, version: str, built: Path, output: Path, config: DebianConfig, log: Path
) -> PackageModules:
    paths = sorted(path for path in built.rglob("*") if path.is_file() and not path.is_symlink())
    names = [path.relative_to(built).as_posix() for path in paths]
    objects = [
        ObjectFile(str(path), f"{recipe.name}/{name}", directory=SOURCE)
        for path, name in zip(paths, names, strict=True)
        if not excluded(name, recipe)
    ]
    outcomes = extract_objects(objects, output, ExtractConfig(cmd_filter=f"^{config.level}$", num_workers=1))
    extracted = [o.object.name for o in outcomes if o.kind == EXTRACTED]
    left = tuple((o.object.name, o.kind, o.detail) for o in outcomes if o.kind != EXTRACTED)
    if not extracted:
        what = f"its build made {len(objects)} C or C++ objects, none with bitcode" if objects else "it has no C or C++"
        return PackageModules(version, f"{what} ({log})", {}, left)
    digests = function_digests([output / f"{name}.bc" for name in extracted], config.build.clang_major)
    return PackageModules(version, "", dict(zip(extracted, digests, strict=True)), left)


def _copy_distinct(
    recipes: Sequence[Recipe], packages: dict[str, PackageModules], kept: Path, output: Path
) -> tuple[list[str], Report]:
    first: dict[str, str] = {}
    left: list[Left] = []
    extracted: dict[str, int] = {}
    for recipe in recipes:
        project, package = recipe.name, packages[recipe.name]
        if package.failure:
            left.append(Left(project, project, PACKAGE_FAILED, package.failure))
        left += [Left(project, *item) for item in package.left]
        for name, digest in package.modules.items():
            if not digest:
                left.append(Left(project, name, NO_FUNCTIONS, "it defines no function"))
            elif (other := first.setdefault(digest, name)) != name:
                left.append(Left(project, name, DUPLICATE, f"the same functions as {other}"))
            else:
                extracted[project] = extracted.get(project, 0) + 1
                for suffix in (".bc", ".cmd"):
                    target = output / f"{name}{suffix}"
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(kept / _kept_as(recipe) / f"{name}{suffix}", target)
    return list(first.values()), Report(extracted, tuple(left))


def _kept_as(recipe: Recipe) -> str:
    """Name of the folder that keeps what a source gave; a directory is built each time, for it may change."""
    return f"{recipe.name}@local" if recipe.source.kind == "path" else recipe.source.location


def _read(folder: Path) -> PackageModules | None:
    try:
        found = json.loads((folder / RESULT).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.pop("format", None) != _FORMAT:
        return None
    return PackageModules(**{**found, "left": tuple(tuple(item) for item in found["left"])})


def _logs(config: DebianConfig) -> Path:
    return config.cache.absolute() / "logs" / "debian"
