"""Finds which modules a build links into which of its programs and shared libraries."""

from __future__ import annotations

import functools
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from components.core.compiler.objects.archive import ArchiveError, is_archive, read_members
from components.core.compiler.objects.elf import ET_REL, TYPE_BYTES, elf_type
from components.core.formats.links import Link, LinksSource
from components.core.projects.build_links.build_files import archives_in, commands_of_cmake, commands_of_ninja, links_in
from components.core.projects.build_links.find import recorded_links
from components.core.projects.build_links.inputs import flatten, is_relocatable, linker_inputs
from components.forecast.units import SourceUnit

_MAX_ENTRIES = 100
"""Entries of a database whose compilers are looked at: a build has few compilers."""
_KEPT_OPTIONS = re.compile(
    r"--gc-sections|--no-gc-sections|--icf=(?:safe|all|none)|-O[0-2]|--export-dynamic|-Bsymbolic"
)
"""Options of the linker that change sizes and name no file."""


@dataclass(frozen=True)
class Library:
    """A static library in a link, of which the members that are needed are linked.

    Attributes:
        units: numbers of its units.
        path: the archive of the build, which may have other members; None if it is not built.
    """

    units: tuple[int, ...]
    path: Path | None


@dataclass(frozen=True)
class LinkedFile:
    """A program or shared library of a build.

    Attributes:
        name: its path relative to the database's directory.
        shared: whether it is a shared library.
        inputs: what is linked, in the order of the link: number of a unit, static library, object of the build that is
            no unit, such as one of assembly.
        options: those of the build's link that change sizes.
    """

    name: str
    shared: bool
    inputs: tuple[int | Library | Path, ...]
    options: tuple[str, ...]

    @functools.cached_property
    def units(self) -> set[int]:
        by_themselves = {item for item in self.inputs if isinstance(item, int)}
        return by_themselves.union(*(item.units for item in self.inputs if isinstance(item, Library)))


@dataclass(frozen=True)
class BuildFiles:
    """The programs and shared libraries of a build that have units.

    Attributes:
        source: who says how the build links; "none" if nobody does.
        files: in the order of the build.
    """

    source: LinksSource = "none"
    files: tuple[LinkedFile, ...] = ()


def find_linked_files(units: Sequence[SourceUnit], database: Path) -> BuildFiles:
    """Return the files of the build of a database.

    Links of ninja and of CMake's Makefiles are known before the build. Files that the compilers of `mlgo corpus
    compilers` linked are known after it.
    """
    tree = database.parent.absolute()
    compilers = dict.fromkeys(os.path.dirname(unit.compiler) for unit in islice(units, _MAX_ENTRIES))
    source: LinksSource = "recorded"
    archives: dict[str, tuple[str, ...]] = {}
    links = recorded_links(tree, map(Path, filter(None, compilers)))
    if not links:
        source, commands = "ninja", commands_of_ninja(tree)
        if not commands:
            source, commands = "CMake", commands_of_cmake(tree)
        links, archives = links_in(commands, built=False), archives_in(commands)
    last = {os.path.realpath(link.output): link for link in links}
    objects = {path: link for path, link in last.items() if is_relocatable(link)}
    inputs = _Inputs(units, archives, objects)
    files = tuple(
        file for path, link in last.items() if path not in objects and (file := _linked_file(link, inputs, tree)).units
    )
    return BuildFiles(source if files else "none", files)


class _Inputs:
    """What the input files of links are made of, `objects` by links of their own (ld -r)."""

    def __init__(
        self, units: Sequence[SourceUnit], archives: Mapping[str, tuple[str, ...]], objects: Mapping[str, Link]
    ) -> None:
        self._real = functools.cache(os.path.realpath)  # links of a large build read hundreds of thousands of files
        self._objects = dict(objects)
        self._units = {os.path.realpath(unit.object): number for number, unit in enumerate(units)}
        self._by_name: dict[str, list[str]] = {}
        for path in self._units:
            self._by_name.setdefault(os.path.basename(path), []).append(path)
        self._archives = {os.path.realpath(path): list(self._numbers(members)) for path, members in archives.items()}

    def of(self, link: Link) -> Iterator[tuple[str, bool]]:
        """Yield `linker_inputs`, of an object that another link makes those of that link."""
        for path, whole in linker_inputs(link, self._exists):
            joined = self._objects.pop(self._real(path), None)  # a link does not use its own output
            if joined is None:
                yield path, whole
            else:
                yield from self.of(joined)
                self._objects[self._real(path)] = joined

    def _exists(self, path: str) -> bool:
        real = self._real(path)
        return real in self._units or real in self._archives or real in self._objects or os.path.isfile(real)

    def unit(self, path: str) -> int | None:
        return self._units.get(self._real(path))

    def library(self, path: str) -> list[int]:
        real = self._real(path)
        if real not in self._archives:
            self._archives[real] = list(self._numbers(self._members(real)))
        return self._archives[real]

    def _numbers(self, paths: Iterable[str]) -> Iterator[int]:
        return (number for path in paths if (number := self.unit(path)) is not None)

    def _members(self, archive: str) -> Iterator[str]:
        """Yield the path of the object that each member of an archive is a copy of."""
        try:
            with open(archive, "rb") as stream:
                if not is_archive(stream.read(8)):
                    return
                view = memoryview(mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ))
            members = read_members(view, archive)
        except (OSError, ValueError, ArchiveError):
            return
        for member in members:
            if member.content is None:
                yield member.path
                continue
            # ar keeps no directories, and read_members numbers the second member of a name.
            named = self._by_name.get(member.name) or self._by_name.get(re.sub(r"\.\d+(?=\.)", "", member.name), [])
            if len(named) == 1:
                yield named[0]
                continue
            yield from islice((path for path in named if _has_content(path, member.content)), 1)


def _has_content(path: str, content: memoryview) -> bool:
    try:
        return os.path.getsize(path) == len(content) and Path(path).read_bytes() == content
    except OSError:
        return False


def _linked_file(link: Link, inputs: _Inputs, tree: Path) -> LinkedFile:
    found: dict[int | Library | Path, None] = {}
    for path, whole in inputs.of(link):
        number = inputs.unit(path)
        library = inputs.library(path) if number is None else []
        built = Path(os.path.realpath(path))
        if number is not None:
            found[number] = None
        elif library and whole:
            found.update(dict.fromkeys(library))
        elif library:
            found[Library(tuple(library), built if built.is_file() else None)] = None
        elif _is_object(built):
            found[built] = None
    words = flatten(link.arguments)
    options = [word for for_linker, word in words if for_linker and _KEPT_OPTIONS.fullmatch(word)]
    if "-rdynamic" in link.arguments:
        options.append("--export-dynamic")
    name = os.path.relpath(link.output, tree)
    return LinkedFile(name, "-shared" in link.arguments, tuple(found), tuple(options))


def _is_object(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return elf_type(stream.read(TYPE_BYTES)) == ET_REL
    except OSError:
        return False
