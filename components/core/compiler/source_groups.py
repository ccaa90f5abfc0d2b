"""Groups the modules of a corpus that were compiled from one source file, or from copies of it.

libtool compiles each source twice, builds have variants (debug, release, other defines), and projects contain copies of
other projects. If one of such modules is trained on, another one is no held-out module. Two modules are in one group if

- their bitcode is equal, or their functions are and have the same names,
- they have the same source path, and are of one project or have most names of functions in common; packages may be
  built in directories of one name,
- or they define mostly the same functions that only one object of a program can define.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from components.core.formats.bitcode_symbols import ModuleSymbols, read_symbols
from components.core.formats.corpus import Module

_DIRECTORY = re.compile(rb"\0-f(?:debug|coverage)-compilation-dir[=\0]([^\0]+)")
_NO_SOURCE = frozenset({"", "-", "<stdin>", "ld-temp.o", "llvm-link"})
_MAIN = "main"
"""Every program defines it."""
_SAME = 0.5
"""Fraction of the functions of two modules that both define, from which on they are versions of one source."""


@dataclass(frozen=True)
class _Identity:
    """Features that identify the source of a module.

    Attributes:
        content: SHA-256 of the bitcode.
        path: of the source, "" if unknown.
    """

    module: Module
    content: str
    path: str
    symbols: ModuleSymbols

    @property
    def names(self) -> frozenset[str]:
        return self.symbols.strong | self.symbols.local

    @property
    def unique_names(self) -> frozenset[str]:
        return self.symbols.strong - {_MAIN}


@dataclass(frozen=True)
class SourceGroup:
    """Modules of one source.

    Attributes:
        indices: positions of the modules in the corpus, ascending.
        position: a pseudorandom number in [0, 1) that depends on the seed and on the group only, by the names of the
            functions if other programs could not define them: then it remains the same when the source is edited, moved
            or compiled in another way, and almost always when another version of it is added.
    """

    indices: tuple[int, ...]
    position: float


def group_by_source(
    modules: Sequence[Module], seed: int, symbols: Sequence[ModuleSymbols] | None = None
) -> list[SourceGroup]:
    """Return the groups of all modules, in the order of their positions.

    Args:
        modules: of a corpus; a module that cannot be read as bitcode is identified by its content alone.
        symbols: those of each module; None reads them.
    """
    known: Iterable[ModuleSymbols | None] = [None] * len(modules) if symbols is None else symbols
    identities = [_identify(module, its) for module, its in zip(modules, known, strict=True)]
    groups = _Groups(len(identities))
    _join_equal(groups, [i.content for i in identities])
    _join_equal(groups, [(i.symbols.bodies, i.names) if i.symbols.bodies else None for i in identities])
    _join_equal(groups, [(i.module.project, i.path) if i.path else None for i in identities])
    _join_similar(groups, identities, [i.names for i in identities], by_path=True)
    _join_similar(groups, identities, [i.unique_names for i in identities], by_path=False)
    members: defaultdict[int, list[int]] = defaultdict(list)
    for index in range(len(identities)):
        members[groups.find(index)].append(index)
    source_groups = []
    for indices in members.values():
        # Names that only this source defines, or the content if there are none.
        defined = {name for index in indices for name in identities[index].unique_names or {identities[index].content}}
        digest = min(hashlib.sha256(f"{seed}:{name}".encode("utf-8", "surrogateescape")).digest() for name in defined)
        # The minimum of several digests is not uniformly distributed; its own digest is.
        position = int.from_bytes(hashlib.sha256(digest).digest()[:8], "big") / 2**64
        source_groups.append(SourceGroup(tuple(indices), position))
    return sorted(source_groups, key=lambda group: (group.position, group.indices))


class _Groups:
    """Disjoint sets of 0 to N-1."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def find(self, index: int) -> int:
        """Return the representative of the set of `index`."""
        while self._parent[index] != index:
            self._parent[index] = self._parent[self._parent[index]]
            index = self._parent[index]
        return index

    def join(self, first: int, second: int) -> None:
        """Unite the sets of two numbers."""
        self._parent[self.find(second)] = self.find(first)


def _identify(module: Module, symbols: ModuleSymbols | None) -> _Identity:
    content = module.bitcode.read_bytes()
    symbols = symbols or read_symbols(content)
    path = ""
    if symbols.source not in _NO_SOURCE:
        path = os.path.normpath(os.path.join(_directory(module), symbols.source))
    return _Identity(module, hashlib.sha256(content).hexdigest(), path, symbols)


def _directory(module: Module) -> str:
    """Return the directory that the module was compiled in, "" if unknown."""
    if module.command_override is not None:
        return ""
    try:
        match = _DIRECTORY.search(module.cmd.read_bytes())
    except OSError:
        return ""
    return os.fsdecode(match[1]) if match else ""


def _join_equal(groups: _Groups, keys: Sequence[Hashable]) -> None:
    """Join all modules with equal keys; None is no key."""
    first: dict[Hashable, int] = {}
    for index, key in enumerate(keys):
        if key is not None:
            groups.join(first.setdefault(key, index), index)


def _join_similar(
    groups: _Groups, identities: Sequence[_Identity], names: Sequence[frozenset[str]], by_path: bool
) -> None:
    """Join modules, with `by_path` only those of one source path, that have more than _SAME of their names in common.

    Sets with so many common elements have one among the rarer half of the elements of each: a name that thousands of
    modules share, such as a test's entry point, then costs no comparisons.
    """
    sets: defaultdict[tuple[str, frozenset[str]], list[int]] = defaultdict(list)
    for index, name_set in enumerate(names):
        path = identities[index].path if by_path else ""
        if name_set and (path or not by_path):
            sets[path, name_set].append(index)
    for indices in sets.values():
        for index in indices[1:]:
            groups.join(indices[0], index)
    frequency = Counter((path, name) for path, name_set in sets for name in name_set)
    with_name: defaultdict[tuple[str, str], list[tuple[frozenset[str], int]]] = defaultdict(list)
    for (path, name_set), indices in sets.items():
        rarest_first = sorted(name_set, key=lambda name: (frequency[path, name], name))
        for name in rarest_first[: (len(rarest_first) + 1) // 2]:
            for other, index in with_name[path, name]:
                if len(name_set & other) > _SAME * len(name_set | other):
                    groups.join(index, indices[0])
            with_name[path, name].append((name_set, indices[0]))
