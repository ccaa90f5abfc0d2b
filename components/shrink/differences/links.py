"""Finds links in which GNU ld and lld take a symbol from different files (linker_rules.py), and shared functions from
files that are compiled for other processors."""

from __future__ import annotations

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.core.compiler.objects.archive import member_contents, read_members
from components.core.compiler.objects.elf import Elf, ElfError
from components.core.projects.flags.linked_files import find_binaries, is_archive
from components.core.projects.runpath import needed_libraries
from components.shrink.differences.linked_files import exported_functions, is_program
from components.shrink.differences.linker_rules import Input, Symbols, Unit, link_by_gnu, link_by_lld
from components.shrink.differences.order import first_moved
from components.shrink.differences.records import Call, LinkerCall, linker_words

_PIC = re.compile(r"-f(?:no-)?(?:PIC|pic|PIE|pie)")
_LINKER_VALUES = frozenset({"-m", "-o", "-z", "-soname", "-h", "-rpath", "-e", "-u", "-T", "-y", "-mllvm", "-plugin"})
_DYNAMIC_LINKER = tuple("-dynamic-linker --dynamic-linker --version-script --dynamic-list --defsym --wrap -Map".split())
_SCRIPT_PATH = re.compile(r"/[^\s()]+\.(?:so[.\d]*|a)\b")
_INITIALIZERS = (b"llvm.global_ctors", b".init_array")
"""What bitcode and objects have that run code before main."""
_MAX_SCRIPT_BYTES = 10_000
_INSTRUCTIONS = re.compile(
    r"-m(?:arch=|cpu=|s?s?se|avx|fma|f16c|bmi|abm|lzcnt|popcnt|movbe|aes|vaes|v?pclmul|sha|gfni|adx|xop|tbm|rdrnd|rdseed"
    r"|fsgsbase|xsave|cx16|crc32|clwb|waitpkg|serialize|amx|kl|widekl|rtm|3dnow).*"
)
"""Options that let a compiler use instructions that not all processors have."""


@dataclass(frozen=True)
class Choice:
    """A symbol of a linked file that is not from where the user's linker takes it.

    Attributes:
        text: sentence on it.
        output: the linked file, relative to the build's tree.
        foreign: whether it is a function of which the linked copy may use more instructions than other copies.
        refused: whether the build is not delivered; a note otherwise.
    """

    text: str
    output: str
    symbol: str
    foreign: bool = False
    refused: bool = True


def differing_choices(
    calls: Iterable[Call], clang: Path, nm: Path, root: Path, linkers: Iterable[LinkerCall] = ()
) -> list[Choice]:
    """Return a symbol of each link in which lld does not take it from where GNU ld does, and one of each in which the
    copy of a shared function is compiled for other processors than a file that defines it, too.

    Args:
        root: the tree that was built, in whose place messages name none.
        linkers: the calls of linkers without a compiler.
    """
    calls = list(calls)
    instructions = _instructions(calls)
    mixed = len(set(instructions.values())) > 1
    symbols = Symbols(nm)
    found: list[Choice] = []
    links: list[Call | LinkerCall] = [*(call for call in calls if call.links), *linkers]
    for call in links:
        if not (mixed or _has_archives(call)):
            continue
        inputs, output = _read_inputs(call, clang, symbols), call.output.removeprefix(f"{root}/")
        found += _archive_choices(inputs, output, root)
        if mixed:
            found += _foreign_copies(inputs, instructions, output, root)
    return list(dict.fromkeys(found))


def wrapped_functions(
    calls: Iterable[Call | LinkerCall], clang: Path, nm: Path, root: Path, gnu: bool = False
) -> list[str]:
    """Return sentences on the functions of --wrap that files of the build define and call.

    GNU ld wraps the calls of other files, lld those of the same file, too. LTO does not tell them from each other, and
    gcc's wraps none.

    Args:
        calls: the links.
        gnu: whether they are by gcc's LTO. For the others see `differing_choices`.
    """
    found = []
    symbols = Symbols(nm)
    for call in calls:
        words = [word.removeprefix("-Wl,") for word in linker_words(call.words)]
        names = [match[1] for word in words if (match := re.fullmatch(r"--?wrap=(.+)", word))]
        names += [after for word, after in itertools.pairwise(words) if re.fullmatch("--?wrap", word)]
        inputs = _read_inputs(call, clang, symbols) if names else ()
        own = [unit for one in inputs for unit in one.units if not unit.shared and Path(unit.file).is_relative_to(root)]
        for name in names:
            unit = next((unit for unit in own if name in unit.defined), None)
            if unit is not None and (gnu or _refers_to_own(Path(unit.file), name)):
                where = unit.name.removeprefix(f"{root}/")
                linker = "gcc's LTO does not wrap it" if gnu else "lld wraps the calls of that file, too"
                output = call.output.removeprefix(f"{root}/")
                found.append(f"{output} is linked with --wrap={name}, which {where} defines: {linker}")
    return list(dict.fromkeys(found))


def _refers_to_own(path: Path, name: str) -> bool:
    """Return whether an object, or a member of an archive, refers to a symbol that it defines. Bitcode may."""
    data = memoryview(path.read_bytes())
    for content in member_contents(data) if is_archive(path) else [data]:
        try:
            elf = Elf(content)
            symbols = elf.symbols()
            indices = [index for index, one in enumerate(elf.symbol_names(symbols.name)) if one == name]
            used = elf.relocations(elf.allocated_sections(), len(symbols)).symbol
        except ElfError:
            return True
        if any(symbols.section[index] > 0 and (used == index).any() for index in indices):
            return True
    return False


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
    """
    calls = [call for call in calls if _is_interposable(call) and (call.object or call.sources)]
    if not calls:
        return []
    exports = {name: exported_functions(path, nm) for name, path in sorted(find_binaries(own))}
    programs = {name for name in exports if is_program(own / name)}
    replaceable = _exported_twice(exports, programs, own)
    if not replaceable:
        return []
    symbols = Symbols(nm)
    symbols.read([call.object for call in calls if call.object and Path(call.object).is_file()])
    found = []
    for call in calls:
        where = (call.object or call.output).removeprefix(f"{root}/")
        defined = {symbol for unit in symbols.of(call.object) for symbol, weak in unit.defined.items() if not weak}
        if where not in programs and (replaced := sorted(replaceable & (defined | exports.get(where, frozenset())))):
            files = " and ".join(name for name, of_file in exports.items() if replaced[0] in of_file)
            found.append(f"{files} both define {replaced[0]}, whose calls in {where} clang may inline and gcc does not")
    return found


def _exported_twice(exports: Mapping[str, frozenset[str]], programs: Collection[str], own: Path) -> set[str]:
    """Return the functions of libraries that a program exports, too, or another library that a program needs.

    Other libraries that export the same functions may be plugins, which are never in one process.
    """
    of_programs = {symbol for name in programs for symbol in exports[name]}
    twice = {symbol for name in exports.keys() - programs for symbol in exports[name]} & of_programs
    places: dict[str, str] = {}  # libraries also by the links that are their names
    for path in own.rglob("*"):
        if path.is_file() and (name := path.resolve().relative_to(own.resolve()).as_posix()) in exports:
            places[path.name] = name
    for program in programs:
        pending, loaded = [program], set()
        while pending:
            name = pending.pop()
            loaded.add(name)
            needed = {places[one] for one in needed_libraries(own / name) if one in places}
            pending += needed - loaded
        counted = Counter(symbol for name in loaded for symbol in exports[name])
        twice |= {symbol for symbol, number in counted.items() if number > 1}
    return twice


def _is_interposable(call: Call) -> bool:
    words = call.arguments.words
    pic = next((word for word in reversed(words) if _PIC.fullmatch(word)), "")
    chosen = next((word for word in reversed(words) if word.endswith("semantic-interposition")), "")
    return pic in ("-fPIC", "-fpic") and chosen == ""


def _read_inputs(call: Call | LinkerCall, clang: Path, symbols: Symbols) -> list[Input]:
    files = list(_linker_inputs(call, clang))
    symbols.read([path for path, *_ in files if Path(path).is_file()])
    return [Input(symbols.of(path), lazy, group) for path, lazy, group in files]


def _has_archives(call: Call | LinkerCall) -> bool:
    """Return whether a link may have archives that are not the system's; asking the driver takes longer."""
    words = call.words
    directories = [call.path(word[2:]) for word in words if word.startswith("-L") and len(word) > 2]
    directories += [call.path(after) for word, after in itertools.pairwise(words) if word == "-L"]
    for word in (part for option in words for part in option.removeprefix("-Wl,").split(",")):
        if word.endswith(".a") or word.startswith(("-l:", "@")):
            return True
        if word.startswith("-l") and any(Path(place, f"lib{word[2:]}.a").is_file() for place in directories):
            return True
    return any(before == "-l" for before in words)


def _archive_choices(inputs: Sequence[Input], output: str, root: Path) -> Iterator[Choice]:
    gnu, in_order = link_by_gnu(inputs)
    lld, loaded = link_by_lld(inputs)
    yield from _moved_initializers(in_order, loaded, output, root)
    for symbol in dict.fromkeys(symbol for one in inputs for unit in one.units for symbol in unit.undefined):
        left, right = gnu.get(symbol), lld.get(symbol)
        # A driver names libgcc.a twice, and the same member is the same code.
        if left is not None and right is not None and left.name != right.name:
            first, second = (unit.name.removeprefix(f"{root}/") for unit in (left, right))
            text = f"{output} has {symbol} of {first} by GNU ld, which reads archives in order, and of {second} by lld"
            yield Choice(text, output, symbol)
            return


def _moved_initializers(gnu: Sequence[Unit], lld: Sequence[Unit], output: str, root: Path) -> Iterator[Choice]:
    """Yield the first two files with initializers that the linkers have in different orders."""
    after = [unit.name for unit in lld]
    names = set(after)
    common = [unit for unit in gnu if unit.name in names and not unit.shared]
    if first_moved([unit.name for unit in common], after) is None:  # which reads no file
        return
    if moved := first_moved([unit.name for unit in common if _initializes(unit)], after):
        before, behind = (name.removeprefix(f"{root}/") for name in moved)
        text = f"{output} runs the initializers of {before} before those of {behind} by GNU ld, not by lld"
        yield Choice(text, output, "", refused=False)


def _initializes(unit: Unit) -> bool:
    member = unit.name.removeprefix(unit.file)[1:-1]
    content = Path(unit.file).read_bytes()
    if member:
        contents = [one.content for one in read_members(memoryview(content), unit.file) if one.name == member]
        content = bytes(contents[0] or b"") if contents else b""
    return any(one in content for one in _INITIALIZERS)


def _foreign_copies(
    inputs: Sequence[Input], instructions: Mapping[str, frozenset[str]], output: str, root: Path
) -> Iterator[Choice]:
    owner, loaded = link_by_lld(inputs)
    named = {
        unit.name: instructions.get(unit.file, instructions.get(_member_object(unit, instructions), frozenset()))
        for unit in loaded
    }
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


def _linker_command(call: Call | LinkerCall, clang: Path) -> Sequence[str]:
    """Return the arguments of a linker; none if the driver runs none."""
    if isinstance(call, LinkerCall):
        return call.words
    done = call.run_clang(clang, [*call.arguments.words, "-fuse-ld=lld", "-###"], "surrogateescape")
    lines = [line for line in done.stderr.splitlines() if line.startswith(' "') and "ld" in line.partition('" ')[0]]
    return shlex.split(lines[-1])[1:] if lines else ()


def _linker_inputs(call: Call | LinkerCall, clang: Path) -> Iterator[tuple[str, bool, int]]:
    """Yield the files of a link, whether each is an archive of which only what is needed is linked, and its group."""
    words = _linker_command(call, clang)
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
