"""Recipes: YAML files with the source and the configuration of projects; docs/own-code.md, "Format", has every key."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from components.core.projects.benchmark import check_benchmarks
from components.core.projects.recipe_document import (
    Benchmark,
    ProjectDocument,
    RecipeSetDocument,
    SourceDocument,
    Target,
    convert,
    recipe_error,
)
from components.platform.errors import UserError
from components.platform.storage.downloads.debsource import PACKAGE
from components.platform.storage.downloads.http_download import require_http
from components.platform.storage.input_files import MissingFile, parse_yaml, read_text
from components.platform.storage.uri import Location, ObjectUri, Words, parse_location

PACKAGED = Path(__file__).with_name("recipes")

_TRIPLE = re.compile(r"[a-z0-9_.]+(-[a-z0-9_.]+){1,3}")
_NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True)
class Source:
    """Origin of a source tree.

    Attributes:
        location: by `kind`, the name of a Debian source package, a git URL, an archive's URL, or an absolute directory.
        pin: the tag of a git source, the SHA-256 (hex) of an archive, else "".
    """

    kind: Literal["deb", "git", "url", "path"]
    location: str
    pin: str = ""


@dataclass(frozen=True)
class Recipe:
    """How one project is built. Exactly one of `cmake_options` and `commands` is not None, or `debian` is true.

    `name` is one path component; it becomes the first component of the names of the project's modules.
    """

    name: str
    source: Source
    requires: tuple[tuple[str, Source], ...] = ()
    directory: str = "."
    cmake_options: tuple[tuple[str, str], ...] | None = None
    targets: tuple[str, ...] = ("all",)
    commands: tuple[str, ...] | None = None
    debian: bool = False
    prepare: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    cflags: tuple[str, ...] = ()
    binaries: tuple[str, ...] = ()
    benchmarks: tuple[Benchmark, ...] = ()
    target: Target | None = None


@dataclass(frozen=True)
class RecipeSet:
    """Projects with distinct names.

    Attributes:
        split: settings of the corpus' split, as written, unchecked.
    """

    projects: tuple[Recipe, ...]
    split: dict[str, Any] = field(default_factory=dict)

    def project(self, name: str) -> Recipe:
        """Return the project called `name`. UserError if there is none."""
        by_name = {recipe.name: recipe for recipe in self.projects}
        if name not in by_name:
            raise UserError(f"the recipes have no project {name!r}", f"choose one of {', '.join(by_name)}")
        return by_name[name]


def recipe_words() -> Words:
    """Return the names of the packaged recipes."""
    return Words(tuple(path.stem for path in sorted(PACKAGED.glob("*.yaml"))))


def locate_recipe(text: str) -> Location:
    """Return the location of a recipe that a user names by the name of a packaged one ("demo"), by path or by URI.

    A file that has the name of a packaged recipe is ./demo.

    Raises:
        UserError: there is no such file on this machine, and no packaged recipe of that name. Object storage is not
            queried.
    """
    if text in recipe_words():
        return PACKAGED / f"{text}.yaml"
    location = parse_location(text)
    if isinstance(location, ObjectUri) or location.is_file():
        return location
    wrong = "that is a directory" if location.is_dir() else "no such file, and none of ours has that name"
    raise UserError(
        f"no recipe at {text}: {wrong}",
        f"name a file, a gs:// or s3:// URI, or one of ours: {', '.join(recipe_words().words)}",
    )


def load_recipes(path: Path) -> RecipeSet:
    """Read a recipe file of one project or of a set.

    A set names the files of its projects relative to itself; those that come with this project need not exist there.

    Raises:
        UserError: the file cannot be read, or is not a recipe; the message names the file and the key.
    """
    path = Path(path)
    content = _read_yaml(path)
    if not _is_set(content):
        return RecipeSet((_recipe(convert(content, ProjectDocument, str(path)), str(path), path.parent),))
    document = convert(content, RecipeSetDocument, str(path))
    recipes = []
    for project in document.projects:
        if isinstance(project, str):
            file = _beside(path, project)
            recipes.append(_recipe(convert(_read_yaml(file), ProjectDocument, str(file)), str(file), file.parent))
        else:
            recipes.append(_recipe(project, str(path), path.parent))
    for package in document.packages:
        source = _source(SourceDocument(deb=package), f"{path}: packages", path.parent)
        recipes.append(Recipe(package.partition("=")[0], source, debian=True))
    if document.target is not None:
        recipes = [_cross_compiled(recipe, document.target, str(path)) for recipe in recipes]
    if not recipes:
        raise recipe_error(str(path), f"{'projects' if 'projects' in content else 'packages'} is empty")
    names = [recipe.name for recipe in recipes]
    for name in names:
        if names.count(name) > 1:
            raise recipe_error(str(path), f"two projects are named {name!r}")
    return RecipeSet(tuple(recipes), document.split)


def _cross_compiled(recipe: Recipe, target: Target, where: str) -> Recipe:
    """Return the recipe for a target. Its programs do not run on this machine, so it has no benchmarks."""
    if recipe.debian:
        raise recipe_error(where, f"target: {recipe.name} is built by its debian/rules, for this machine only")
    if not _TRIPLE.fullmatch(target.triple):
        raise recipe_error(where, f"target: {target.triple!r} is not a triple", "such as aarch64-linux-gnu")
    if target.sysroot is not None and not Path(target.sysroot).is_dir():
        remedy = "install it (Debian: the package that the recipe's head or docs/own-code.md names), or fix the path"
        raise recipe_error(where, f"target: there is no sysroot {target.sysroot}", remedy)
    return replace(recipe, target=target, benchmarks=())


def recipe_files(path: Path) -> tuple[Path, ...]:
    """Return the files that `load_recipes` reads for a recipe besides itself, in their order. UserError as there."""
    content = _read_yaml(path)
    items = convert(content, RecipeSetDocument, str(path)).projects if _is_set(content) else ()
    return tuple(_beside(path, item) for item in items if isinstance(item, str))


def _is_set(content: Any) -> bool:
    return isinstance(content, dict) and ("projects" in content or "packages" in content)


def _beside(path: Path, name: str) -> Path:
    file = path.parent / name
    return PACKAGED / name if not file.exists() and (PACKAGED / name).is_file() else file


def _read_yaml(path: Path) -> Any:
    try:
        text = read_text(path, "name a recipe: a .yaml file")
    except MissingFile:
        raise UserError(f"no recipe at {path}: no such file", "check the path") from None
    documents = parse_yaml(text, str(path), "correct the file at that place")
    if len(documents) > 1:
        raise UserError(f"{path} has {len(documents)} YAML documents", "a recipe is one document")
    return documents[0] if documents else None


def _recipe(project: ProjectDocument, where: str, base: Path) -> Recipe:
    _require_name(project.name, where)
    where = f"{where}: {project.name}"
    if sum(kind is not None for kind in (project.cmake, project.commands, project.build)) != 1:
        raise recipe_error(where, "exactly one of cmake, commands and build: debian is needed")
    source = _source(project.source, f"{where}: source", base)
    if project.build == "debian":
        return _debian(project, source, where)
    for name in project.requires:
        _require_name(name, f"{where}: requires")
        if name == "source":
            raise recipe_error(
                where, "requires: {source} already stands for the project's own source", "choose another name"
            )
    requires = project.requires.items()
    check_benchmarks(project.benchmarks, where)
    recipe = Recipe(
        project.name,
        source,
        requires=tuple((name, _source(one, f"{where}: requires: {name}", base)) for name, one in requires),
        prepare=project.prepare,
        commands=project.commands,
        exclude=project.exclude,
        cflags=project.cflags,
        binaries=project.binaries,
        benchmarks=project.benchmarks,
    )
    cmake = project.cmake
    if cmake is None:
        return recipe
    options = tuple((key, _cmake_value(key, value, where)) for key, value in cmake.options.items())
    return replace(recipe, directory=cmake.directory, cmake_options=options, targets=cmake.targets or ("all",))


def _debian(project: ProjectDocument, source: Source, where: str) -> Recipe:
    if source.kind not in ("deb", "path"):
        raise recipe_error(where, "build: debian needs a source package", "source: {deb: NAME}, or {path: DIRECTORY}")
    recipe = Recipe(project.name, source, debian=True, exclude=project.exclude, binaries=project.binaries)
    if any((project.requires, project.prepare, project.cflags, project.benchmarks)):
        raise recipe_error(where, "build: debian takes only exclude and binaries")
    return recipe


def _require_name(name: str, where: str) -> None:
    if not _NAME.fullmatch(name):
        raise recipe_error(where, f"name {name!r} must be letters, digits and ._+- without a leading dot")


def _cmake_value(key: str, value: bool | int | float | str, where: str) -> str:
    """Return a value as CMake spells it."""
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    if isinstance(value, float) and not math.isfinite(value):
        raise recipe_error(where, f"cmake: options: {key} is {value}", "write a finite number or text")
    return str(value)


def _source(source: SourceDocument, where: str, base: Path) -> Source:
    settings = {key: value for key in ("deb", "git", "tag", "url", "sha256", "path") if (value := getattr(source, key))}
    if set(settings) not in ({"deb"}, {"git", "tag"}, {"url", "sha256"}, {"path"}):
        raise recipe_error(where, "a source is exactly one of deb, git with tag, url with sha256, and path")
    match settings:
        case {"deb": package}:
            if not PACKAGE.fullmatch(package):
                raise recipe_error(where, f"{package!r} is not the name of a source package", "NAME or NAME=VERSION")
            return Source("deb", package)
        case {"git": location, "tag": tag}:
            for text, kind in (location, "URL"), (tag, "tag"):
                if text.startswith("-") or not text.isprintable():
                    raise recipe_error(where, f"{text!r} is not a {kind}")
            return Source("git", location, tag)
        case {"url": location, "sha256": sha256}:
            sha256 = sha256.lower()
            if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
                raise recipe_error(where, "sha256 must be 64 hexadecimal digits")
            try:
                require_http(location)
            except UserError as error:
                raise recipe_error(where, f"url: {error.problem}", error.remedy) from None
            return Source("url", location, sha256)
    path = settings["path"]
    try:
        return Source("path", str((base / path).resolve()))
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links
        raise recipe_error(where, f"path: {path!r} is not the path of a directory: {error}") from None
