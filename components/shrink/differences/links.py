"""Finds links in which GNU ld and lld take a symbol from different files, and shared functions from files that are
compiled for other processors.

GNU ld reads the inputs from left to right, and takes from an archive what is undefined until then. lld remembers the
symbols of all archives that it has read. So both differ if something behind an archive needs it, and its symbol is also
in a later archive or shared library; --warn-backrefs says nothing about that.
"""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from components.core.projects.flags.linked_files import find_binaries
from components.shrink.differences.linked_files import exported_functions, is_program
from components.shrink.differences.records import Call

_TIMEOUT_S = 300.0
_PIC = re.compile(r"-f(?:no-)?(?:PIC|pic|PIE|pie)")
_LINKER_VALUES = frozenset({"-m", "-o", "-z", "-soname", "-h", "-rpath", "-e", "-u", "-T", "-y", "-mllvm", "-plugin"})
_DYNAMIC_LINKER = (
    "-dynamic-linker",
    "--dynamic-linker",
    "--version-script",
    "--dynamic-list",
    "--defsym",
    "--wrap",
    "-Map",
)
_SCRIPT_PATH = re.compile(r"/[^\s()]+\.(?:so[.\d]*|a)\b")
_MAX_SCRIPT_BYTES = 10_000
_INSTRUCTIONS = re.compile(
    r"-m(?:arch=|cpu=|s?s?se|avx|fma|f16c|bmi|abm|lzcnt|popcnt|movbe|aes|vaes|v?pclmul|sha|gfni|adx|xop|tbm|rdrnd|rdseed"
    r"|fsgsbase|xsave|cx16|crc32|clwb|waitpkg|serialize|amx|kl|widekl|rtm|3dnow).*"
)
"""Options that let a compiler use instructions that not all processors have."""


@dataclass
class Unit:
    """An object, a member of an archive, or a shared library.

    Attributes:
        name: file, or archive and member.
        file: path of the file.
        defined: symbols that it defines -> whether the definition is weak.
        undefined: symbols that it needs.
        shared: whether it is a shared library.
    """

    name: str
    file: str
    defined: dict[str, bool] = field(default_factory=dict)
    undefined: set[str] = field(default_factory=set)
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
            options = ["-D"] if shared else ["--no-sort"]
            done = subprocess.run(
                [self._nm, "-A", "-P", *options, *chosen],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="surrogateescape",
                timeout=_TIMEOUT_S,
            )
            units: dict[str, list[Unit]] = {path: [] for path in chosen}
            for line in done.stdout.splitlines():
                name, _, rest = line.rpartition(": ")
                words = rest.split()
                if len(words) >= 2:
                    file = name.rpartition("[")[0] if name.endswith("]") and name not in units else name
                    of_file = units.setdefault(file, [])
                    if not of_file or of_file[-1].name != name:
                        of_file.append(Unit(name, file, shared=shared))
                    _add(of_file[-1], words[0].partition("@")[0] if shared else words[0], words[1])
            self._units |= {(path, shared): tuple(of_file) for path, of_file in units.items()}

    def of(self, path: str) -> tuple[Unit, ...]:
        """Return the units of a file that was read."""
        return self._units.get((path, _is_shared(path)), ())


def _add(unit: Unit, symbol: str, kind: str) -> None:
    if kind == "U":
        unit.undefined.add(symbol)
    elif kind.isupper() or kind in "iu":
        unit.defined[symbol] = kind in "WV"


def _is_shared(path: str) -> bool:
    return re.search(r"\.so(?:\.[\d.]+)?$", path) is not None


def link_by_gnu(inputs: Sequence[Input]) -> dict[str, Unit]:
    """Return which unit GNU ld takes each symbol from."""
    state = _Link()
    index = 0
    while index < len(inputs):
        group = inputs[index].group
        end = index + 1
        while group >= 0 and end < len(inputs) and inputs[end].group == group:
            end += 1
        for one in inputs[index:end]:
            if not one.lazy:
                state.load_all(one.units)
        changed = True
        while changed:
            changed = False
            for one in inputs[index:end]:
                while one.lazy and state.load_needed(one.units):
                    changed = True
        index = end
    return state.owner


def link_by_lld(inputs: Sequence[Input]) -> tuple[dict[str, Unit], list[Unit]]:
    """Return which unit lld takes each symbol from, and all that it links, in its order."""
    state = _Link()
    lazy: dict[str, Unit] = {}
    for one in inputs:
        for unit in one.units:
            if one.lazy:
                for symbol in unit.defined:
                    if symbol not in state.owner:
                        lazy.setdefault(symbol, unit)
            else:
                state.load(unit)
                for symbol in unit.defined if unit.shared else ():
                    lazy.pop(symbol, None)
        while needed := [lazy[symbol] for symbol in state.undefined if symbol in lazy]:
            for unit in needed:
                state.load(unit)
    return state.owner, state.loaded


class _Link:
    """Symbols of a link.

    Attributes:
        owner: unit of each defined symbol; a definition that is not weak replaces one that is.
        undefined: symbols that are needed and not defined, in order.
        loaded: the units, in order.
    """

    def __init__(self) -> None:
        self.owner: dict[str, Unit] = {}
        self.undefined: dict[str, None] = {}
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
            if old is None or ((old.shared or old.defined[symbol]) and not weak and not unit.shared):
                self.owner[symbol] = unit
        for symbol in unit.undefined:
            if symbol not in self.owner:
                self.undefined.setdefault(symbol)

    def load_all(self, units: Iterable[Unit]) -> None:
        for unit in units:
            self.load(unit)

    def load_needed(self, units: Iterable[Unit]) -> bool:
        """Load the members that define what is undefined, and return whether there was one."""
        found = False
        for unit in units:
            if id(unit) not in self._names and any(symbol in self.undefined for symbol in unit.defined):
                self.load(unit)
                found = True
        return found


@dataclass(frozen=True)
class Choice:
    """A symbol of a linked file that is not from where the user's linker takes it.

    Attributes:
        text: sentence on it.
        output: the linked file, relative to the build's tree.
        symbol: its name.
        foreign: whether it is a function of which the linked copy may use more instructions than other copies.
    """

    text: str
    output: str
    symbol: str
    foreign: bool = False


def differing_choices(calls: Iterable[Call], clang: Path, nm: Path, root: Path) -> list[Choice]:
    """Return a symbol of each link in which lld does not take it from where GNU ld does, and one of each in which the
    copy of a shared function is compiled for other processors than a file that defines it, too.

    Args:
        calls: the calls of the compilers.
        clang: the compiler.
        nm: LLVM's nm.
        root: the tree that was built, in whose place messages name none.
    """
    calls = list(calls)
    instructions = _instructions(calls)
    mixed = len(set(instructions.values())) > 1
    symbols = Symbols(nm)
    found: list[Choice] = []
    for call in calls:
        if not call.links or not (mixed or _has_archives(call)):
            continue
        files = list(_linker_inputs(call, clang))
        symbols.read([path for path, *_ in files if Path(path).is_file()])
        inputs = [Input(symbols.of(path), lazy, group) for path, lazy, group in files]
        output = call.path(call.arguments.output or "a.out").removeprefix(f"{root}/")
        found += _archive_choices(inputs, output, root)
        if mixed:
            found += _foreign_copies(inputs, instructions, output, root)
    return list(dict.fromkeys(found))


def mixed_instructions(calls: Iterable[Call]) -> str:
    """Return a sentence on C++ files with different options for processors, "" if there are none.

    Objects of gcc's LTO do not tell which of these files a shared template is compiled in.
    """
    instructions = _instructions(call for call in calls if "+" in call.program)
    more = next((path for path, options in instructions.items() if options), "")
    if not more or len(set(instructions.values())) < 2:
        return ""
    options = " ".join(sorted(instructions[more]))
    return (
        f"{Path(more).name} is compiled with {options}, and gcc's LTO may take its copies of templates for other files"
    )


def replaced_functions(calls: Iterable[Call], own: Path, nm: Path, root: Path) -> list[str]:
    """Return sentences on the functions of shared libraries that a program of the user's own build defines, too.

    By gcc, the library's own calls reach that one. Clang may inline them.

    Args:
        calls: compiles by which clang assumes that functions are not replaced.
        own: what the user's own build linked.
        root: the tree that was built.
    """
    calls = [call for call in calls if _is_interposable(call) and (call.object or call.sources)]
    if not calls:
        return []
    exports = {name: exported_functions(path, nm) for name, path in sorted(find_binaries(own))}
    programs = {name for name in exports if is_program(own / name)}
    # Libraries that export the same functions may be plugins, which are never in one process.
    of_programs = {symbol for name in programs for symbol in exports[name]}
    replaceable = {symbol for name in exports.keys() - programs for symbol in exports[name]} & of_programs
    if not replaceable:
        return []
    symbols = Symbols(nm)
    symbols.read([call.object for call in calls if call.object and Path(call.object).is_file()])
    found = []
    for call in calls:
        where = (call.object or call.path(call.arguments.output or "a.out")).removeprefix(f"{root}/")
        defined = {symbol for unit in symbols.of(call.object) for symbol, weak in unit.defined.items() if not weak}
        if where not in programs and (replaced := sorted(replaceable & (defined | exports.get(where, frozenset())))):
            files = " and ".join(name for name, of_file in exports.items() if replaced[0] in of_file)
            found.append(f"{files} both define {replaced[0]}, whose calls in {where} clang may inline and gcc does not")
    return found


def _is_interposable(call: Call) -> bool:
    words = call.arguments.words
    pic = next((word for word in reversed(words) if _PIC.fullmatch(word)), "")
    chosen = next((word for word in reversed(words) if word.endswith("semantic-interposition")), "")
    return pic in ("-fPIC", "-fpic") and chosen == ""


def _has_archives(call: Call) -> bool:
    """Return whether a link may have archives that are not the system's; asking the driver takes longer."""
    words = call.arguments.words
    directories = [call.path(word[2:]) for word in words if word.startswith("-L") and len(word) > 2]
    directories += [call.path(after) for word, after in itertools.pairwise(words) if word == "-L"]
    for word in (part for option in words for part in option.removeprefix("-Wl,").split(",")):
        if word.endswith(".a") or word.startswith(("-l:", "@")):
            return True
        if word.startswith("-l") and any(Path(place, f"lib{word[2:]}.a").is_file() for place in directories):
            return True
    return any(before == "-l" for before in words)


def _archive_choices(inputs: Sequence[Input], output: str, root: Path) -> Iterator[Choice]:
    gnu = link_by_gnu(inputs)
    lld, _ = link_by_lld(inputs)
    for symbol in dict.fromkeys(symbol for one in inputs for unit in one.units for symbol in unit.undefined):
        left, right = gnu.get(symbol), lld.get(symbol)
        # A driver names libgcc.a twice, and the same member is the same code.
        if left is not None and right is not None and left.name != right.name:
            first, second = (unit.name.removeprefix(f"{root}/") for unit in (left, right))
            text = f"{output} has {symbol} of {first} by GNU ld, which reads archives in order, and of {second} by lld"
            yield Choice(text, output, symbol)
            return


def _foreign_copies(
    inputs: Sequence[Input], instructions: Mapping[str, frozenset[str]], output: str, root: Path
) -> Iterator[Choice]:
    owner, loaded = link_by_lld(inputs)
    named: dict[str, frozenset[str]] = {}
    for unit in loaded:
        named[unit.name] = instructions.get(
            unit.file, instructions.get(_member_object(unit, instructions), frozenset())
        )
    for unit in loaded:
        for symbol, weak in unit.defined.items():
            chosen = owner[symbol]
            more = named[chosen.name] - named[unit.name]
            if weak and chosen is not unit and not chosen.shared and more:
                where, other = (one.name.removeprefix(f"{root}/") for one in (chosen, unit))
                options = " ".join(sorted(more))
                text = f"{output} has {symbol} of {where}, which is compiled with {options}, for {other}, too"
                yield Choice(text, output, symbol, foreign=True)
                return


def _member_object(unit: Unit, instructions: Mapping[str, frozenset[str]]) -> str:
    """Return the object that a member of an archive was, if there is one of this name only."""
    member = unit.name.rpartition("[")[2].rstrip("]")
    paths = [path for path in instructions if Path(path).name == member]
    return max(paths, key=lambda path: len(instructions[path]), default="")


def _instructions(calls: Iterable[Call]) -> dict[str, frozenset[str]]:
    """Return for each object the options by which it may use more instructions."""
    return {
        call.object: frozenset(word for word in call.arguments.words if _INSTRUCTIONS.fullmatch(word))
        for call in calls
        if call.object
    }


def _linker_inputs(call: Call, clang: Path) -> Iterator[tuple[str, bool, int]]:
    """Yield the files of a link, whether each is an archive of which only what is needed is linked, and its group."""
    done = call.run_clang(clang, [*call.arguments.words, "-fuse-ld=lld", "-###"], "surrogateescape")
    lines = [line for line in done.stderr.splitlines() if line.startswith(' "') and "ld" in line.partition('" ')[0]]
    if not lines:
        return
    words = shlex.split(lines[-1])[1:]
    directories = [call.path(word[2:]) for word in words if word.startswith("-L") and len(word) > 2]
    whole = static = False
    group, groups = -1, 0
    iterator = iter(words)
    for word in iterator:
        if word in _LINKER_VALUES or word in _DYNAMIC_LINKER:
            next(iterator, None)
        elif word in ("--whole-archive", "-whole-archive", "--no-whole-archive", "-no-whole-archive"):
            whole = "no-" not in word
        elif word in ("-Bstatic", "-static", "-dn", "-non_shared"):
            static = True
        elif word in ("-Bdynamic", "-dy", "-call_shared"):
            static = False
        elif word in ("--start-group", "-(", "-start-group"):
            group, groups = groups, groups + 1
        elif word in ("--end-group", "-)", "-end-group"):
            group = -1
        elif word.startswith("-l") and len(word) > 2:
            for path in _library(word[2:], directories, static):
                yield path, path.endswith(".a") and not whole, group
        elif not word.startswith("-"):
            path = call.path(word)
            for file in [path] if not path.endswith(".so") else _of_script(path):
                yield file, file.endswith(".a") and not whole, group


def _library(name: str, directories: Sequence[str], static: bool) -> list[str]:
    names = [name[1:]] if name.startswith(":") else [*([] if static else [f"lib{name}.so"]), f"lib{name}.a"]
    for directory in directories:
        for file in names:
            if (path := Path(directory, file)).is_file():
                return _of_script(str(path))
    return []


def _of_script(path: str) -> list[str]:
    """Return the files of a linker script, such as libc.so, or the file itself."""
    with Path(path).open("rb") as stream:
        start = stream.read(_MAX_SCRIPT_BYTES)
    if start.startswith((b"\x7fELF", b"!<arch>", b"!<thin>", b"BC\xc0\xde")):
        return [path]
    files = _SCRIPT_PATH.findall(re.sub(r"/\*.*?\*/", "", start.decode("utf-8", "replace"), flags=re.DOTALL))
    return [file for file in files if Path(file).is_file()]
