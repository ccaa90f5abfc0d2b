"""Repeats the links of a user's build with other objects in place of those that embed a module of the corpus.

Objects are recognized by the bitcode that they embed, wherever they are: on the command line of a link, or in a static
library, however that was made. The output of a link is given to the links that use it, a relocatable object's too. What
stays as the build left it is counted with the reason.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from components.core.compiler.objects.archive import ArchiveError, Member, is_archive, read_members
from components.core.compiler.objects.elf import ET_REL, TYPE_BYTES, Elf, ElfError, elf_type
from components.core.compiler.replay.replay_options import is_harmless_llvm_option
from components.core.formats.bitcode import BitcodeError, is_bitcode, read_layout
from components.core.formats.links import BuildLinks, Link, Lto, embedded_digest
from components.core.projects.build_links.driver import lto_of
from components.core.projects.build_links.inputs import flatten, input_paths, is_relocatable, takes_value
from components.platform.storage.input_files import open_regular

_BITCODE, _COMMAND = ".llvmbc", ".llvmcmd"
_UNWANTED_FLAGS = frozenset(("-MD", "-MMD", "-MP", "-MG", "-ftime-trace", "-save-temps"))
_UNWANTED_WITH_VALUE = frozenset(("-o", "--output", "-MF", "-MT", "-MQ", "-MJ"))
_UNWANTED_OF_LINKER = re.compile(
    r"--?(?:Map|dependency-file|out-implib|print-map|opt-remarks-(?:filename|format|hotness-threshold|passes))(?:=.*)?"
)
"""Options of the linker that write files next to the linked one, or to the terminal."""
_UNWANTED_OF_LTO = re.compile(
    r"--?(?:plugin-opt=)?(?:save-temps|cache-dir|cache-policy|obj-path|stats-file)(?:=.*)?"
    r"|--?thinlto-cache-(?:dir|policy)=.*|--?thinlto-emit-(?:index|imports)-files|--?lto-obj-path=.*"
    r"|--?(?:plugin-opt=opt-remarks-.*|opt-remarks-with-hotness)"
)
"""The same of link-time optimization."""
_DRIVER_RUNS_PROGRAMS = re.compile(
    r"-B.*|--prefix.*|-ccc-.*|--?gcc-.*|--?sysroot.*|--?target=.*/.*"  # directories of programs
    r"|--?ld-path.*|-fuse-ld=.*/.*|-wrapper.*|--?specs.*|--?config.*|--?(?:cuda|hip|rocm|ptxas|dxv).*|--?[a-z]+-arch-tool.*"
    r"|-f[a-z-]*plugin.*|-fthinlto-distributor.*"
    r"|-cc1.*|-X(?!assembler$).*|-Wp,(?!-[DU][^,]*$).*|--for-.*|--analyze|--driver-mode.*"  # options for other programs
)
"""Options of the driver that name a program or a library to run, or a directory of programs: links.json of a corpus
from elsewhere must not."""
_LINKER_RUNS_PROGRAMS = re.compile(
    r"--?plugin(?!-opt).*|--?load-pass-plugin.*|--?thinlto-(?:distributor|remote).*"
    r"|--?(?:linker|cuda|rocm|ptxas)-path.*|--?(?:offload|device)-.*"  # clang-linker-wrapper gets the linker's options
)
"""The same of the linker."""
_LLVM_OPTION = re.compile(r"--?(?:mllvm=|plugin-opt=(?=-))(.*)")
_MLLVM, _PLUGIN_OPT = ("-mllvm", "--mllvm"), ("-plugin-opt", "--plugin-opt")
_TARGET = ("-target", "--target")
_CHECKED_BY_VALUE = frozenset((*_MLLVM, *_PLUGIN_OPT, *_TARGET))
_EMBED = "-fembed-bitcode"
_SOURCE = re.compile(r".*\.(?:c|cc|cpp|cxx|c\+\+|C|i|ii|m|mm)")
NO_BITCODE = "without bitcode: assembly, prebuilt, or compiled without the compilers of mlgo corpus compilers"
LTO_BITCODE = "bitcode of LTO, which no corpus has: build with the compilers of mlgo corpus compilers"
JOINED = (
    "linked from several objects (ld -r) by a link that is not recorded: build with the ld of mlgo corpus compilers"
)
NOT_IN_CORPUS = "whose modules are not in the corpus: its report.json says why"
_UNKNOWN_LTO = "it has the option -flto, and nothing says which objects have: extract the corpus by --compile-commands"
_OTHER_LTO = re.compile(r"-funified-lto|--?(?:plugin-opt=)?thinlto-index-only(?:=.*)?")


class NotReplayed(Exception):
    """A link that is not repeated; the message is the reason."""


@dataclass(frozen=True)
class Archive:
    """A static library with modules of the corpus.

    Attributes:
        members: its members with the module of each, None for a member that is not in the corpus.
    """

    members: tuple[tuple[Member, str | None], ...]


Piece = str | Archive | Link
"""Replacement of a file of a build: a module's object, a static library that is made again, the output of a link."""


@dataclass
class ReplayPlan:
    """Links of a build, and what their input files are.

    Attributes:
        links: the build's links, and the modules of the corpus.
    """

    links: BuildLinks
    _pieces: dict[str, Piece | None] = field(default_factory=dict)
    _kept: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    _changes: dict[str, bool] = field(default_factory=dict)
    _lto: dict[str, Lto | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # All links of a large build read hundreds of thousands of files.
        self.real = cache(os.path.realpath)
        self.inputs = cache(lambda link: tuple(input_paths(link)))

    @cached_property
    def _outputs(self) -> dict[str, Link]:
        return {os.path.realpath(link.output): link for link in self.links.links}

    @cached_property
    def order(self) -> tuple[Link, ...]:
        """The links, each after those whose outputs it uses."""
        done: dict[str, Link] = {}
        open_links: set[str] = set()

        def visit(link: Link) -> None:
            if link.output in done or link.output in open_links:
                return
            open_links.add(link.output)
            for path in self.inputs(link):
                piece = self.piece(path)
                if isinstance(piece, Link):
                    visit(piece)
            done[link.output] = link

        for link in self.links.links:
            visit(link)
        return tuple(done.values())

    def piece(self, path: str) -> Piece | None:
        """Return what replaces a file; None for a file that stays as it is."""
        real = self.real(path)
        if real not in self._pieces:
            self._pieces[real] = self._outputs.get(real) or self._find_piece(real)
        return self._pieces[real]

    def modules(self, link: Link) -> set[str]:
        """Return the modules in the objects and static libraries of a link."""
        found: set[str] = set()
        for path in self.inputs(link):
            piece = self.piece(path)
            if isinstance(piece, str):
                found.add(piece)
            elif isinstance(piece, Archive):
                found.update(module for _member, module in piece.members if module)
        return found

    def kept_objects(self, links: Iterable[Link]) -> dict[str, list[str]]:
        """Return why objects of the build, by themselves and in its libraries, stay as they are -> their names."""
        paths = dict.fromkeys(self.real(path) for link in links for path in self.inputs(link))
        tree = os.path.realpath(self.links.tree)
        kept: dict[str, list[str]] = {}
        for path in paths:
            for member, reason in self._kept.get(path, ()) if Path(path).is_relative_to(tree) else ():
                kept.setdefault(reason, []).append(os.path.relpath(path, tree) + (f"({member})" if member else ""))
        return kept

    def optimizes(self, link: Link) -> Lto | None:
        """Return the LTO that a link itself does: its objects or sources are compiled for one.

        Raises:
            NotReplayed: which objects are is unknown, or it is of a kind that is not replayed.
        """
        asked = lto_of(link.arguments)
        if other := next((word for _, word in flatten(link.arguments) if _OTHER_LTO.fullmatch(word)), None):
            raise NotReplayed(f"its option {other} is not replayed: build with -flto or -flto=thin alone")
        if asked and self.links.lto is None:
            raise NotReplayed(_UNKNOWN_LTO)
        kinds: set[Lto | None] = set()
        for module in self.modules(link):
            if (lto := (self.links.lto or {}).get(module)) == "mixed":
                raise NotReplayed(
                    f"{module} is compiled for several kinds of LTO (none, thin, full), which its objects do not tell "
                    "apart: build one kind"
                )
            kinds.add(lto)
        paths = map(self.real, self.inputs(link))
        if has_sources(link) or any(reason == LTO_BITCODE for path in paths for _, reason in self._kept.get(path, ())):
            kinds.add(asked)
        strongest = _strongest(kinds)
        if strongest and not asked:
            raise NotReplayed("objects of it have the option -flto and it has not: link with -flto, too")
        return strongest

    def lto(self, link: Link) -> Lto | None:
        """Return the LTO that code of a linked file went through, in its own link or a relocatable one that it uses."""
        if link.output not in self._lto:
            self._lto[link.output] = None  # for a link that uses its own output
            used = (self.piece(path) for path in self.inputs(link))
            # One that does not change is used as it was built.
            parts = [piece for piece in used if isinstance(piece, Link) and is_relocatable(piece)]
            parts = [part for part in parts if self.changes(part)]
            kinds = {self.optimizes(link), *map(self.lto, parts)}
            self._lto[link.output] = _strongest(kinds)
        return self._lto[link.output]

    def changes(self, link: Link) -> bool:
        """Return whether a link has a module of the corpus, itself or in a file that another link makes of one."""
        if link.output not in self._changes:
            self._changes[link.output] = False  # for a link that uses its own output
            self._changes[link.output] = bool(self.modules(link)) or any(
                self.changes(piece) for path in self.inputs(link) if isinstance(piece := self.piece(path), Link)
            )
        return self._changes[link.output]

    def within(self, path: str) -> str:
        """Return the path of a file relative to the build's tree, with "__" for each ".." of one outside of it."""
        return os.path.relpath(path, self.links.tree).replace("../", "__/")

    def _find_piece(self, path: str) -> Piece | None:
        try:
            with os.fdopen(open_regular(path), "rb") as stream:
                head = stream.read(TYPE_BYTES)
                if elf_type(head) != ET_REL and not is_bitcode(head) and not is_archive(head):
                    return None
                view = memoryview(mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ))
        except (OSError, ValueError):
            return None
        if not is_archive(view):
            return self._module_of(view, path)
        try:
            members = [
                (member, self._module_of(_content(member), path, member.name)) for member in read_members(view, path)
            ]
        except (ArchiveError, OSError):
            return None
        return Archive(tuple(members)) if any(module for _member, module in members) else None

    def _module_of(self, content: memoryview, path: str, member: str = "") -> str | None:
        """Return the module of an object, a member of the library `path` or that file; None for one that stays."""
        module = self.links.modules.get(_digest(content))
        if module is None:
            self._kept.setdefault(path, []).append((member, _reason_to_keep(content)))
        return module


def _strongest(kinds: Collection[Lto | None]) -> Lto | None:
    """Return the LTO of what consists of parts with these kinds: full LTO makes the parts that have it one module."""
    return "full" if "full" in kinds else "thin" if "thin" in kinds else None


def _content(member: Member) -> memoryview:
    if member.content is not None:
        return member.content
    # A thin archive of a corpus from elsewhere may name a device or a pipe.
    with os.fdopen(open_regular(member.path), "rb") as stream:
        return memoryview(stream.read())


def _reason_to_keep(content: memoryview) -> str:
    """Return why an object that is no module of the corpus stays as it is."""
    if is_bitcode(content):
        return LTO_BITCODE
    try:
        bitcode = Elf(content).section(_BITCODE)
        if not bitcode:
            return NO_BITCODE
        modules = read_layout(lambda offset, length: bytes(bitcode[offset : offset + length]), len(bitcode))
    except (ElfError, BitcodeError):
        return NO_BITCODE
    return JOINED if len(modules) > 1 else NOT_IN_CORPUS


def _digest(content: memoryview) -> str:
    """Return what identifies the module that an object embeds, "" if it embeds none."""
    try:
        elf = Elf(content)
        bitcode, command = elf.section(_BITCODE), elf.section(_COMMAND)
    except ElfError:
        return ""
    return embedded_digest(bitcode, command) if bitcode and command else ""


def names_linker(link: Link) -> bool:
    """Return whether a link says which linker it uses; otherwise LTO is by GNU ld or by the release clang's lld."""
    return any(word.startswith(("-fuse-ld=", "--ld-path=")) for word in link.arguments)


def has_sources(link: Link) -> bool:
    """Return whether a link compiles, too."""
    return any(not for_linker and _SOURCE.fullmatch(word) for for_linker, word in flatten(link.arguments))


def runs_program(for_linker: bool, word: str, before: str) -> bool:
    """Return whether a word of a link names a program or a library to run.

    Args:
        for_linker: whether it is the linker's, not the driver's.
        before: the word of the same before it.
    """
    if word.startswith("@"):
        return True  # a response file, whose words nobody checked: those of the build were expanded when recorded
    # As the next word, an option of GNU ld's and gold's plugin.
    is_llvm = before in _MLLVM or (before in _PLUGIN_OPT and word.startswith("-"))
    llvm = word if is_llvm else None
    if llvm is None and (match := _LLVM_OPTION.fullmatch(word)):
        llvm = match[1]
    if llvm is not None and not is_harmless_llvm_option(llvm):
        return True
    if before in _TARGET and "/" in word and not for_linker:
        return True  # the driver runs TARGET-ld
    if for_linker and _LINKER_RUNS_PROGRAMS.fullmatch(word):
        return True
    # With a comma it is passed on by -Xlinker, which the driver may take for the value of another option.
    return (not for_linker or "," in word) and _DRIVER_RUNS_PROGRAMS.fullmatch(word) is not None


def rewrite(link: Link, output: Path, replacements: Mapping[str, Path], directories: Mapping[str, Path]) -> list[str]:
    """Return the arguments of a link that reads and writes other files.

    Args:
        output: the file to write.
        replacements: real path of a file -> the file to read in its place.
        directories: absolute path of a directory -> the one to search for libraries before it.

    Raises:
        NotReplayed: an option runs a program that the corpus names.
    """
    arguments: list[str] = []

    def add(for_linker: bool, word: str) -> None:
        if for_linker and word and "," not in word:
            word = f"-Wl,{word}"  # not -Xlinker, which may be the value of another option
        elif for_linker:
            arguments.append("-Xlinker")
        arguments.append(word)

    words = iter(flatten(link.arguments))
    previous = no_option = (False, "")
    last = {False: "", True: ""}
    for for_linker, word in words:
        before, previous = previous, (for_linker, word)
        is_value = last[for_linker] in _CHECKED_BY_VALUE
        if word == "-Xclang" and not for_linker and not is_value:
            _, value = next(words, (False, ""))
            if not value.startswith(_EMBED):
                raise NotReplayed(f"its option -Xclang {value} could run a program")
            continue
        if runs_program(for_linker, word, last[for_linker]):
            raise NotReplayed(f"its option {word} could run a program: link without it to have this file compared")
        last[for_linker] = word
        if is_value:  # without it, the option would take the next word, which was not checked as its value
            add(for_linker, word)
            previous = no_option
        elif for_linker and _UNWANTED_OF_LINKER.fullmatch(word):
            if "=" not in word and word.strip("-") != "print-map":
                next(words, None)
            previous = no_option
        elif for_linker and _UNWANTED_OF_LTO.fullmatch(word):
            previous = no_option
        elif not for_linker and word in _UNWANTED_WITH_VALUE:
            next(words, None)
            previous = no_option
        elif not for_linker and (
            word in _UNWANTED_FLAGS or word.startswith((_EMBED, "-o", "--output=", "-save-temps="))
        ):
            continue
        elif word.startswith("-L") or before[1] == "-L":
            named = word if before[1] == "-L" else word[2:]
            searched = os.path.normpath(os.path.join(link.directory, named))
            if named and searched in directories:
                # Before the option, whose value may be the next word.
                at = len(arguments) - (2 if for_linker else 1) if before[1] == "-L" else len(arguments)
                arguments[at:at] = [f"-L{directories[searched]}"]
            add(for_linker, word)
        else:
            path = None
            if word and not word.startswith("-") and not takes_value(*before):
                path = replacements.get(os.path.realpath(os.path.join(link.directory, word)))
            add(for_linker, str(path) if path else word)
    return [*arguments, "-o", str(output)]
