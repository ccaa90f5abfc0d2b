"""Writes how a user's build linked its programs into the corpus of its modules."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from components.core.formats.links import BuildLinks, Lto, ModuleLto, write_links
from components.core.projects.build_links.driver import lto_of
from components.core.projects.build_links.find import find_links
from components.core.projects.build_links.recorded import compilers_near
from components.core.projects.compile_commands import compilers_in, compiles_in
from components.corpus.extraction.outcome import Outcome
from components.platform.storage.input_files import read_text

_MAX_ENTRIES = 100
"""Entries of a database whose compilers are looked at: a build has few compilers."""


def write_build_links(directory: Path, outcomes: Sequence[Outcome], source: Path, compilers: Path | None) -> str:
    """Write links.json, unless no object is an ELF object with a module; return what to say of it.

    Args:
        source: compile_commands.json of the build, or the directory of its objects.
        compilers: directory of the compilers that recorded the links; None: that of the compilers in the database, or
            one in the current directory, in that of the build, or next to that.

    Raises:
        UserError: the directory has no compilers that record links.
    """
    modules: dict[str, str] = {}
    for outcome in outcomes:
        if outcome.digest:
            modules.setdefault(outcome.digest, outcome.object.name)
    if not modules:
        return ""
    is_database = source.is_file()
    tree = (source.parent if is_database else source).absolute()
    named = [compilers] if compilers else compilers_near(tree)
    if is_database and not compilers:
        programs = islice(compilers_in(read_text(source), source), _MAX_ENTRIES)
        named = [*map(Path, dict.fromkeys(os.path.dirname(program) for program in programs)), *named]
    origin, links, problem = find_links(tree, named, required=compilers is not None)
    lto = _lto_of_modules(source, outcomes, modules) if is_database else None
    write_links(directory, BuildLinks(str(tree), origin, tuple(links), modules, problem, lto))
    if links:
        return f"{len(links)} link{'s' if len(links) > 1 else ''} of the build ({origin})"
    return f"programs will not be linked for the report: {problem}"


def _lto_of_modules(database: Path, outcomes: Sequence[Outcome], modules: dict[str, str]) -> dict[str, ModuleLto]:
    """Return the LTO that the commands of a database ask for, by the modules of their objects.

    Args:
        modules: `embedded_digest` of an object -> its module.
    """
    content = read_text(database)
    if "-flto" not in content and "@" not in content:  # nor in a response file
        return {}
    asked = {command.object: lto_of(command.arguments) for command in compiles_in(content, database)}
    kinds: dict[str, set[Lto | None]] = {}
    for outcome in outcomes:
        if outcome.digest:
            kinds.setdefault(modules[outcome.digest], set()).add(asked.get(os.path.abspath(outcome.object.path)))
    single = {name: next(iter(found)) if len(found) == 1 else "mixed" for name, found in kinds.items()}
    return {name: lto for name, lto in single.items() if lto}
