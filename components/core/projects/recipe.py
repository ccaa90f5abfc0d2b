"""Recipes: YAML that says where a project's source comes from and how it is configured.

One project:

    name: lz4
    source: {deb: lz4}                  # or {git: URL, tag: TAG}, {url: URL, sha256: HEX}, {path: DIRECTORY}
    requires:                           # optional: other sources, named {gtest} in options and commands
      gtest: {deb: googletest}
    prepare: [shell lines]              # optional: run in the source first; a local path is then copied
    cmake:                              # or commands: [shell lines]
      directory: build/cmake            # of CMakeLists.txt in the source, default .
      options: {BUILD_SHARED_LIBS: "ON"}
      targets: [all]                    # what a whole build makes, default all
    exclude: ["*/fuzz/*"]               # optional: objects left out of a corpus, as globs of their path;
                                        # the last that matches decides, "!*/fuzz/one.c.o" takes one back
    cflags: [-Wno-error]                # optional: flags that this project needs
    binaries: ["liblz4.so.*", lz4]      # optional: globs of the linked files that users ship
    benchmarks:                         # optional: runs of built programs whose instructions are counted
      - name: compress
        program: lz4                    # path or glob relative to the build directory (of commands: to the source)
        arguments: [-q, "{input}", "{output}"]   # {output}: a file that it writes; also {source}
        input: {files: ["lib/*.c"], bytes: 1000000}   # content of source files in the order of their paths, repeated
                                        # or cut; or {text: TEXT}, or {output_of: an earlier benchmark}
        stdin: true                     # the input comes on standard input, too; else nothing does

A Debian source package that is built by its own rules, with clang in place of GCC, in a root that is thrown away:

    name: zlib
    source: {deb: zlib}                 # or {path: DIRECTORY} with debian/ in it
    build: debian                       # in place of cmake and commands; also exclude and binaries, as globs of paths
                                        # below the source tree, and of shipped files with their package before them

A benchmark executes the same instructions each time: one thread, no loop that ends by the clock, no seed from the time
or from addresses. It runs in a directory of its own, its status must be 0, and what it prints to standard output and
writes to {output} the same whichever compiler built it.

A set of projects, with the corpus' split:

    projects: [lz4.yaml, ...]           # files beside this one, or projects spelled out as above
    packages: [zlib, fish]              # the same as a project of `build: debian` for each
    split: {validation_fraction: 0.1, heldout_fraction: 0.15, heldout_projects: [lz4], seed: 0}

Commands run in a copy of the source with CC, CXX, CFLAGS, CXXFLAGS, LDFLAGS and JOBS set; they may leave a
compile_commands.json; without one every object file below the directory counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from components.core.console import UserError
from components.core.projects.benchmark import Benchmark, parse_benchmarks
from components.core.projects.typed_mapping import TypedMapping
from components.core.storage.debsource import PACKAGE
from components.core.storage.http_download import require_http
from components.core.storage.input_files import MissingFile, parse_yaml, read_text
from components.core.storage.uri import GsUri, parse_place

PACKAGED = Path(__file__).parents[2] / "corpus" / "recipes"
"""The recipes that come with this project."""

_NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True)
class Source:
    """Where a source tree comes from.

    location: a Debian source package's name, a git URL, an archive's URL, or an absolute directory, by `kind`.
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


@dataclass(frozen=True)
class RecipeSet:
    """Projects with distinct names, and `split`: the settings of the corpus' split as written, unchecked."""

    projects: tuple[Recipe, ...]
    split: dict[str, Any] = field(default_factory=dict)

    def project(self, name: str) -> Recipe:
        """Raises `UserError` for an unknown name."""
        for recipe in self.projects:
            if recipe.name == name:
                return recipe
        known = ", ".join(recipe.name for recipe in self.projects)
        raise UserError(f"the recipes have no project {name!r}", f"choose one of {known}")


def recipe_place(text: str) -> Path | GsUri:
    """Where the recipe is that a user means by `text`: a file's path, a URI, or the name of one of ours ("demo").

    Raises:
        UserError: there is no such file on this machine, and none of ours has that name. Object storage is not asked.
    """
    place = parse_place(text)
    if isinstance(place, GsUri) or place.is_file():
        return place
    ours = {path.stem: path for path in sorted(PACKAGED.glob("*.yaml"))}
    if text in ours:
        return ours[text]
    wrong = "that is a directory" if place.is_dir() else "no such file, and none of ours has that name"
    raise UserError(f"no recipe at {text}: {wrong}", f"name a file, a gs:// URI, or one of ours: {', '.join(ours)}")


def load_recipes(path: Path) -> RecipeSet:
    """Read a recipe file of one project or of a set. `UserError` names the file and the key that is wrong.

    A set names the files of its projects relative to itself; those that come with this project need not be there.
    """
    path = Path(path)
    top = TypedMapping(_read_yaml(path), str(path))
    if "projects" not in top and "packages" not in top:
        return RecipeSet((_recipe(top, path.parent),))
    top.only("projects", "packages", "split")
    recipes = []
    for item in top.items("projects"):
        if isinstance(item, str):
            file = _beside(path, item)
            recipes.append(_recipe(TypedMapping(_read_yaml(file), str(file)), file.parent))
        else:
            recipes.append(_recipe(TypedMapping(item, f"{path}: projects"), path.parent))
    recipes += [_package(top, package) for package in top.strings("packages")]
    if not recipes:
        raise top.error("projects is empty" if "projects" in top else "packages is empty")
    names = [recipe.name for recipe in recipes]
    for name in names:
        if names.count(name) > 1:
            raise top.error(f"two projects are named {name!r}")
    split = top.mapping("split", {})
    return RecipeSet(tuple(recipes), dict(split.value))


def recipe_files(path: Path) -> tuple[Path, ...]:
    """The files beside a recipe that `load_recipes` reads for it, in their order. `UserError` as there."""
    top = TypedMapping(_read_yaml(path), str(path))
    items = top.items("projects") if "projects" in top else ()
    return tuple(_beside(path, item) for item in items if isinstance(item, str))


def _beside(path: Path, name: str) -> Path:
    file = path.parent / name
    return PACKAGED / name if not file.exists() and (PACKAGED / name).is_file() else file


def _read_yaml(path: Path) -> Any:
    try:
        text = read_text(path, "name a recipe: a .yaml file")
    except MissingFile:
        raise UserError(f"no recipe at {path}: no such file", "check the path") from None
    documents = parse_yaml(text, str(path), "correct the file at the place named")
    if len(documents) > 1:
        raise UserError(f"{path} has {len(documents)} YAML documents", "a recipe is one document")
    return documents[0] if documents else None


def _package(top: TypedMapping, package: str) -> Recipe:
    if not PACKAGE.fullmatch(package):
        raise top.error(f"packages: {package!r} is not the name of a source package", "NAME or NAME=VERSION")
    return Recipe(package.partition("=")[0], Source("deb", package), debian=True)


def _debian(top: TypedMapping, name: str, base: Path) -> Recipe:
    top.only("name", "source", "build", "exclude", "binaries")
    where = top.named(name)
    if (build := where.string("build")) != "debian":
        raise where.error(f"build: {build!r} is not known", "build: debian, or cmake, or commands")
    source = _source(where.mapping("source"), base)
    if source.kind not in ("deb", "path"):
        raise where.error("build: debian needs a source package", "source: {deb: NAME}, or {path: DIRECTORY}")
    return Recipe(name, source, debian=True, exclude=where.strings("exclude"), binaries=where.strings("binaries"))


def _recipe(top: TypedMapping, base: Path) -> Recipe:
    top.only(
        "name",
        "source",
        "requires",
        "prepare",
        "cmake",
        "commands",
        "build",
        "exclude",
        "cflags",
        "binaries",
        "benchmarks",
    )
    name = top.string("name")
    if not _NAME.fullmatch(name):
        raise top.error(f"name {name!r} must be letters, digits and ._+- without a leading dot")
    if "build" in top:
        return _debian(top, name, base)
    where = top.named(name)
    if ("cmake" in where) == ("commands" in where):
        raise where.error("exactly one of cmake and commands is needed, or build: debian")
    source = _source(where.mapping("source"), base)
    requires = where.mapping("requires", {})
    for required in requires:
        if not _NAME.fullmatch(required) or required == "source":
            raise requires.error(f"name {required!r} must be letters, digits and ._+- without a leading dot")
    recipe = Recipe(
        name,
        source,
        requires=tuple((key, _source(requires.mapping(key), base)) for key in requires),
        prepare=where.strings("prepare"),
        exclude=where.strings("exclude"),
        cflags=where.strings("cflags"),
        binaries=where.strings("binaries"),
        benchmarks=parse_benchmarks(where),
    )
    if "commands" in where:
        return replace(recipe, commands=where.strings("commands"))
    cmake = where.mapping("cmake", {})
    cmake.only("directory", "options", "targets")
    options = cmake.mapping("options", {})
    return replace(
        recipe,
        directory=cmake.string("directory", "."),
        cmake_options=tuple((key, options.scalar(key)) for key in options),
        targets=cmake.strings("targets") or ("all",),
    )


def _source(value: TypedMapping, base: Path) -> Source:
    kinds = [kind for kind in ("deb", "git", "url", "path") if kind in value]
    if len(kinds) != 1:
        raise value.error("a source needs exactly one of deb, git, url and path")
    match kinds[0]:
        case "deb":
            value.only("deb")
            if not PACKAGE.fullmatch(package := value.string("deb")):
                raise value.error(f"deb: {package!r} is not the name of a source package", "NAME or NAME=VERSION")
            return Source("deb", package)
        case "git":
            value.only("git", "tag")
            location, tag = value.string("git"), value.string("tag")
            for key, text in ("git", location), ("tag", tag):
                if text.startswith("-") or not text.isprintable():
                    raise value.error(f"{key}: {text!r} is not a {'URL' if key == 'git' else 'tag'}")
            return Source("git", location, tag)
        case "url":
            value.only("url", "sha256")
            sha256 = value.string("sha256").lower()
            if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
                raise value.error("sha256 must be 64 hexadecimal digits")
            location = value.string("url")
            try:
                require_http(location)
            except UserError as error:
                raise value.error(f"url: {error.problem}", error.remedy) from None
            return Source("url", location, sha256)
        case _:
            value.only("path")
            return Source("path", str(_resolve(value, base)))


def _resolve(value: TypedMapping, base: Path) -> Path:
    path = value.string("path")
    try:
        return (base / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links, NUL
        raise value.error(f"path: {path!r} is not a directory's path: {error}") from None
