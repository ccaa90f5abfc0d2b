"""Corpora of Debian source packages: each is built by its debian/rules, and packages that fail are skipped.

The modules of a built package, or the reason of its failure, are cached, so that a second run of the same set continues
where the first one ended. A failed build is repeated only with `retry_failed`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from components.core.projects.build import is_excluded
from components.core.projects.debian_build.package import SOURCE, WORK, base_root, build_package
from components.core.projects.link_recorder.recorder import read_links
from components.core.projects.recipe import Recipe
from components.corpus.extraction.extract import ExtractConfig, extract_objects
from components.corpus.extraction.outcome import Outcome
from components.corpus.outcome_kind import OutcomeKind
from components.corpus.report import CorpusReport, Skipped
from components.corpus.sources.build_config import EMBED, BuildConfig
from components.corpus.sources.objects import ObjectFile
from components.corpus.sources.programs import ProgramConfig, extract_programs
from components.platform.console import Progress, say
from components.platform.console.interrupts import continues_when_rerun
from components.platform.errors import UserError
from components.platform.processes.build_tools import stop_running
from components.platform.processes.output import capture
from components.platform.storage.shared_state.stale_directories import remove_stale

_FUNCTION = re.compile(r"^Function (.*) Hash: ([0-9a-f]+)$", re.MULTILINE)
_DIGEST_TIMEOUT_S = 120.0
RESULT = "package.json"
_FORMAT = 1
_PARALLEL_PACKAGES = 2
"""One package compiles while another is configured or its dependencies are installed."""


@dataclass(frozen=True)
class PackageModules:
    """Modules of a built package, or the reason why there are none.

    Attributes:
        version: of the source package.
        failure: why there are no modules, "" if there are.
        modules: name in the corpus -> digest of its functions.
        left: (name, kind, detail) of each object without a module, see report.py.
    """

    version: str
    failure: str
    modules: dict[str, str]
    left: tuple[tuple[str, str, str], ...]


def build_packages(recipes: Sequence[Recipe], output: Path, config: BuildConfig) -> tuple[list[str], CorpusReport]:
    """Build packages and copy their distinct modules to `output`.

    A module is skipped if its functions equal those of an earlier module, in the recipes' order: libraries compile
    their sources twice, and packages contain copies of other packages.

    Returns:
        The modules' names, and the outcome of every object.

    Raises:
        UserError: the root file system cannot be made, or no package has a module.
    """
    base = base_root(config.cache, config.package.clang_major)
    unit = "" if config.unit == "object" else f"-{config.unit}s"
    cache = config.cache.absolute() / "debian" / "packages" / f"{base.name}{config.level}{unit}"
    cache.mkdir(parents=True, exist_ok=True)
    remove_stale(base.parent.glob(f"{WORK}*"))
    packages: dict[str, PackageModules] = {}
    with (
        continues_when_rerun(),
        Progress("building Debian packages", len(recipes)) as progress,
        ThreadPoolExecutor(_PARALLEL_PACKAGES) as pool,
    ):
        futures = {pool.submit(_build_or_load, recipe, cache, base, config): recipe for recipe in recipes}
        try:
            for future in as_completed(futures):
                recipe, package = futures[future], future.result()
                packages[recipe.name] = package
                if package.failure:
                    say(f"skipped {recipe.name}: {package.failure}")
                progress.advance(modules=sum(len(package.modules) for package in packages.values()))
        except BaseException:
            stop_running(futures)
            raise
    names, report = _copy_distinct(recipes, packages, cache, output)
    if not names:
        raise UserError(f"none of {len(recipes)} packages yields a module", f"see the logs in {_log_directory(config)}")
    return names, report


def _build_or_load(recipe: Recipe, cache: Path, base: Path, config: BuildConfig) -> PackageModules:
    folder = cache / _cache_key(recipe)
    package = _read_cached(folder)
    rebuild = recipe.source.kind == "path" or (config.retry_failed and package and package.failure)
    if package is not None and not rebuild:
        return package
    package = _build(recipe, cache, base, config, "objects")
    if not package.failure and not package.modules and not package.left:
        # Some rules compile only when the binary packages are made.
        package = _build(recipe, cache, base, config, "binary")
    return package


def _build(
    recipe: Recipe, cache: Path, base: Path, config: BuildConfig, target: Literal["objects", "binary"]
) -> PackageModules:
    """Build the package and cache its modules, or the reason why there are none.

    A build that compiles nothing without making binary packages is not cached, and has neither modules nor a failure.
    """
    folder = cache / _cache_key(recipe)
    log = _log_directory(config) / f"{recipe.name}.log"
    build = dataclasses.replace(
        config.package,
        jobs=config.jobs,
        compile_flags=(config.level,),
        object_flags=EMBED,
        records_links=config.unit == "program",
    )
    with build_package(recipe, base, build, target, log) as built:
        failed = PackageModules(built.version, f"{built.failure} ({log})", {}, ())
        if not built.lasting:
            return failed
        if target == "objects" and not built.failure and not any(path.is_file() for path in built.objects.rglob("*")):
            return PackageModules(built.version, "", {}, ())
        partial = built.work / "modules"
        partial.mkdir()
        try:
            if built.failure:
                package = failed
            elif config.unit == "program":
                package = _extract_linked(recipe, built.version, built.links, partial, config, log)
            else:
                package = _extract(recipe, built.version, built.objects, partial, config, log)
        except UnreadableModuleError as error:
            package = PackageModules(built.version, error.problem, {}, ())
        (partial / RESULT).write_text(json.dumps({"format": _FORMAT, **asdict(package)}, indent=1) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another build of the same package finished first
            partial.rename(folder)
    return package


def _extract(recipe: Recipe, version: str, built: Path, output: Path, config: BuildConfig, log: Path) -> PackageModules:
    paths = sorted(path for path in built.rglob("*") if path.is_file() and not path.is_symlink())
    names = [path.relative_to(built).as_posix() for path in paths]
    objects = [
        ObjectFile(str(path), f"{recipe.name}/{name}", directory=SOURCE)
        for path, name in zip(paths, names, strict=True)
        if not is_excluded(name, recipe)
    ]
    outcomes = extract_objects(objects, output, ExtractConfig(cmd_filter=f"^{config.level}$", num_workers=1))
    failure = f"none of its {len(objects)} C or C++ objects has bitcode" if objects else "it has no C or C++"
    return _digest_modules(version, outcomes, output, config, f"{failure} ({log})")


def _extract_linked(
    recipe: Recipe, version: str, records: Path, output: Path, config: BuildConfig, log: Path
) -> PackageModules:
    """Extract the programs and shared libraries that the package's rules link."""
    links = read_links(records) if records.is_dir() and any(records.iterdir()) else []
    links = [link for link in links if not is_excluded(os.path.relpath(link.output, SOURCE), recipe)]
    programs = extract_programs(links, output, ProgramConfig(), Path(SOURCE), f"{recipe.name}/")
    failure = f"none of its {len(links)} links has a module" if links else "it links no program of bitcode"
    return _digest_modules(version, programs.outcomes, output, config, f"{failure} ({log})")


def _digest_modules(
    version: str, outcomes: Sequence[Outcome], output: Path, config: BuildConfig, failure: str
) -> PackageModules:
    """Return the extracted modules; `failure` is the reason if there are none."""
    extracted = [o.object.name for o in outcomes if o.kind == OutcomeKind.EXTRACTED]
    left = tuple((o.object.name, o.kind, o.detail) for o in outcomes if o.kind != OutcomeKind.EXTRACTED)
    if not extracted:
        return PackageModules(version, failure, {}, left)
    digests = digest_functions([output / f"{name}.bc" for name in extracted], config.package.clang_major)
    return PackageModules(version, "", dict(zip(extracted, digests, strict=True)), left)


def _copy_distinct(
    recipes: Sequence[Recipe], packages: dict[str, PackageModules], cache: Path, output: Path
) -> tuple[list[str], CorpusReport]:
    first: dict[str, str] = {}
    left: list[Skipped] = []
    extracted: dict[str, int] = {}
    for recipe in recipes:
        project, package = recipe.name, packages[recipe.name]
        if package.failure:
            left.append(Skipped(project, project, OutcomeKind.PACKAGE_FAILED, package.failure))
        left += [Skipped(project, *item) for item in package.left]
        for name, digest in package.modules.items():
            if not digest:
                left.append(Skipped(project, name, OutcomeKind.NO_FUNCTIONS, "it defines no function"))
            elif (other := first.setdefault(digest, name)) != name:
                left.append(Skipped(project, name, OutcomeKind.DUPLICATE, f"the same functions as {other}"))
            else:
                extracted[project] = extracted.get(project, 0) + 1
                for suffix in (".bc", ".cmd"):
                    target = output / f"{name}{suffix}"
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(cache / _cache_key(recipe) / f"{name}{suffix}", target)
    return list(first.values()), CorpusReport(extracted, tuple(left))


def _cache_key(recipe: Recipe) -> str:
    """Return the name of the package's cache folder. A local directory is rebuilt each time because it may change."""
    return f"{recipe.name}@local" if recipe.source.kind == "path" else recipe.source.location


def _read_cached(folder: Path) -> PackageModules | None:
    try:
        document = json.loads((folder / RESULT).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.pop("format", None) != _FORMAT:
        return None
    return PackageModules(**{**document, "left": tuple(tuple(item) for item in document["left"])})


def _log_directory(config: BuildConfig) -> Path:
    return config.cache.absolute() / "logs" / "debian"


class UnreadableModuleError(UserError):
    """LLVM's opt does not read a module."""


def digest_functions(bitcode: Sequence[Path], llvm_major: int) -> list[str]:
    """Return a digest of each module's functions, "" for a module that defines none.

    A source that is compiled for a shared and for a static library has one digest: LLVM's structural hash
    (llvm/IR/StructuralHash.h, LLVM 19) covers types, instructions and constants, not the relocation model. The digest
    also covers the names of the functions.

    Raises:
        UserError: opt of this LLVM version is not installed.
        UnreadableModuleError: it cannot read a module, or takes longer than two minutes.
    """
    opt = shutil.which(f"opt-{llvm_major}")
    if opt is None:
        raise UserError(
            f"opt-{llvm_major} is missing; it is needed to compare modules", f"apt-get install llvm-{llvm_major}"
        )
    return [_digest(opt, path) for path in bitcode]


def _digest(opt: str, path: Path) -> str:
    command = [opt, "-passes=print<structural-hash><detailed>", "-disable-output", str(path)]
    try:
        done = capture(command, _DIGEST_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise UnreadableModuleError(
            f"{opt} did not read {path} within {_DIGEST_TIMEOUT_S:.0f} s", "remove the package from the recipe"
        ) from None
    if done.returncode != 0:
        messages = done.stderr.strip().splitlines()
        raise UnreadableModuleError(
            f"{opt} cannot read {path}: {messages[-1] if messages else 'no message'}", "rebuild it"
        )
    functions = sorted(_FUNCTION.findall(done.stderr))
    return hashlib.sha256(repr(functions).encode()).hexdigest() if functions else ""
