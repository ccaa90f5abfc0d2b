"""Which files GNU ld and lld take the symbols of a link from.

GNU ld reads the inputs from left to right, and takes from an archive what is undefined until then. lld remembers the
symbols of all archives that it has read. So both differ if something behind an archive needs it, and its symbol is also
in a later archive or shared library; --warn-backrefs says nothing about that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from components.core.projects.flags.linked_files import is_archive
from components.platform.processes.output import capture

_TIMEOUT_S = 300.0


@dataclass
class Unit:
    """An object, a member of an archive, or a shared library.

    Attributes:
        name: file, or archive and member.
        defined: symbols that it defines -> whether the definition is weak.
        undefined: symbols that it needs, in order.
        common: the defined ones that are common symbols (-fcommon): variables without a value.
        data: the other variables that it defines. A member of an archive is linked for one that is common elsewhere.
        shared: whether it is a shared library.
    """

    name: str
    file: str
    defined: dict[str, bool] = field(default_factory=dict)
    undefined: dict[str, None] = field(default_factory=dict)
    common: set[str] = field(default_factory=set)
    data: set[str] = field(default_factory=set)
    shared: bool = False


@dataclass(frozen=True)
class Input:
    """A file of a linker's command line.

    Attributes:
        units: the object, or the members of an archive.
        lazy: whether only the members are linked that something needs.
        group: number of its --start-group, -1 outside of groups.
    """

    units: tuple[Unit, ...]
    lazy: bool
    group: int = -1


class Symbols:
    """Reads the symbols of files, each file once.

    Args:
        nm: LLVM's, which also reads bitcode.
    """

    def __init__(self, nm: Path) -> None:
        self._nm = nm
        self._units: dict[tuple[str, bool], tuple[Unit, ...]] = {}

    def read(self, files: Sequence[str]) -> None:
        """Read several files by one process."""
        for shared in (False, True):
            chosen = [path for path in files if _is_shared(path) == shared and (path, shared) not in self._units]
            if not chosen:
                continue
            archives = [path for path in chosen if not shared and is_archive(Path(path))]
            self._units |= {(path, False): tuple(self._members(path)) for path in archives}
            units = {path: Unit(path, path, shared=shared) for path in chosen if path not in archives}
            for line in self._run("-A", "-D" if shared else "--no-sort", *units) if units else ():
                name, _, rest = line.rpartition(": ")
                words = rest.split()
                if len(words) >= 2 and name in units:
                    _add(units[name], words[0].partition("@")[0] if shared else words[0], words[1])
            self._units |= {(path, shared): (unit,) for path, unit in units.items()}

    def _members(self, archive: str) -> Iterator[Unit]:
        """Yield the members of an archive, which may have several of one name."""
        unit, before = None, ""
        for line in self._run("--no-sort", archive):
            words = line.split()
            if line.endswith(":") and not before:
                if unit is not None:
                    yield unit
                unit = Unit(f"{archive}[{line[:-1]}]", archive)
            elif unit is not None and len(words) >= 2:
                _add(unit, words[0], words[1])
            before = line
        if unit is not None:
            yield unit

    def _run(self, *arguments: str) -> list[str]:
        return capture([self._nm, "-P", *arguments], _TIMEOUT_S, "surrogateescape").stdout.splitlines()

    def of(self, path: str) -> tuple[Unit, ...]:
        """Return the units of a file that was read."""
        return self._units.get((path, _is_shared(path)), ())


def _add(unit: Unit, symbol: str, kind: str) -> None:
    if kind == "U":
        unit.undefined[symbol] = None
    elif kind.isupper() or kind in "iu":
        unit.defined[symbol] = kind in "WV"
        if kind == "C":
            unit.common.add(symbol)
        elif kind in "BDGRS":
            unit.data.add(symbol)


def _is_shared(path: str) -> bool:
    return re.search(r"\.so(?:\.[\d.]+)?$", path) is not None


def link_by_gnu(inputs: Sequence[Input]) -> tuple[dict[str, Unit], list[Unit]]:
    """Return which unit GNU ld takes each symbol from, and all that it links, in its order."""
    state = _Link()
    index = 0
    while index < len(inputs):
        group = inputs[index].group
        end = index + 1
        while group >= 0 and end < len(inputs) and inputs[end].group == group:
            end += 1
        for one in inputs[index:end]:
            for unit in one.units if not one.lazy else ():
                state.load(unit)
        changed = True
        while changed:
            changed = False
            for one in inputs[index:end]:
                while one.lazy and state.load_needed(one.units):
                    changed = True
        index = end
    return state.owner, state.loaded


def link_by_lld(inputs: Sequence[Input]) -> tuple[dict[str, Unit], list[Unit]]:
    """Return which unit lld takes each symbol from, and all that it links, in its order."""
    state = _Link()
    lazy: dict[str, Unit] = {}

    def extract(symbols: Iterable[str]) -> None:
        """Load the members that define needed ones of some symbols, and then what each member needs."""
        pending = [iter(list(symbols))]
        while pending:
            symbol = next(pending[-1], None)
            if symbol is None:
                pending.pop()
            elif (unit := lazy.get(symbol)) is not None and state.needs(unit, symbol):
                state.load(unit)
                pending.append(iter([*unit.undefined, *unit.common]))

    for one in inputs:
        for unit in one.units:
            if one.lazy:
                for symbol in unit.defined:
                    if symbol not in state.owner or state.needs(unit, symbol):
                        lazy.setdefault(symbol, unit)
                extract(unit.defined)
            else:
                state.load(unit)
                for symbol in unit.defined if unit.shared else unit.common:
                    lazy.pop(symbol, None)
                extract([*unit.undefined, *unit.common])
    return state.owner, state.loaded


class _Link:
    """Symbols of a link.

    Attributes:
        owner: unit of each defined symbol; a definition that is not weak replaces one that is.
        undefined: symbols that are needed and not defined, in order.
        common: symbols whose owner defines them as common ones, in order.
        loaded: the units, in order.
    """

    def __init__(self) -> None:
        self.owner: dict[str, Unit] = {}
        self.undefined: dict[str, None] = {}
        self.common: dict[str, None] = {}
        self.loaded: list[Unit] = []
        self._names: set[int] = set()

    def load(self, unit: Unit) -> None:
        if id(unit) in self._names:
            return
        self._names.add(id(unit))
        self.loaded.append(unit)
        for symbol, weak in unit.defined.items():
            self.undefined.pop(symbol, None)
            old = self.owner.get(symbol)
            replaced = old is not None and (old.shared or old.defined[symbol] or symbol in self.common)
            if old is None or (replaced and not weak and not unit.shared and symbol not in unit.common):
                self.owner[symbol] = unit
                self.common.pop(symbol, None)
                if symbol in unit.common:
                    self.common[symbol] = None
        for symbol in unit.undefined:
            if symbol not in self.owner:
                self.undefined.setdefault(symbol)

    def needs(self, unit: Unit, symbol: str) -> bool:
        """Return whether a symbol that a member of an archive defines is why it is linked."""
        return symbol in self.undefined or (symbol in unit.data and symbol in self.common)

    def load_needed(self, units: Iterable[Unit]) -> bool:
        """Load the members that define what is undefined, and return whether there was one."""
        found = False
        for unit in units:
            if id(unit) not in self._names and any(self.needs(unit, symbol) for symbol in unit.defined):
                self.load(unit)
                found = True
        return found
