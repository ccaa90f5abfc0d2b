"""Reads what the compilers of a build recorded: their command lines, and the headers that they read."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from components.core.projects.compiler_scripts import HEADERS, LINKERS, READERS, RESPONSE_FILES, SOURCES, STDIN
from components.core.projects.driver_arguments import DriverArguments, read_arguments
from components.core.projects.response_files import split_response_file
from components.platform.errors import UserError
from components.platform.processes.output import capture

_CHECK_DIRECTORY = re.compile(r"/CMakeFiles/(?:CMakeTmp|CMakeScratch)(?:/|$)|/CompilerId\w*$|/meson-private(?:/|$)")
_CHECK_FILE = re.compile(
    r"(?:^|/)(?:(?:lib)?conftest\d?|cmTC_[0-9a-f]{5}|sanitycheck[a-z]*)(?:\.\w+)*$"
    rf"|(?:^|/)(?:conftest|cmTC_[0-9a-f]{5})\.dir/|{_CHECK_DIRECTORY.pattern}"
)
"""Directories and files of the trial programs of build systems. A project may have such a name as a part of others."""
_TIMEOUT_S = 120.0
_LINKED = (".o", ".obj", ".lo", ".a", ".la", ".so", ".lib", ".os")
_ASSEMBLY = (".s", ".S", ".sx")


@dataclass(frozen=True)
class Call:
    """A call of a compiler.

    Attributes:
        directory: working directory.
        program: name that the compiler was called by.
        arguments: its arguments, those of response files in their places.
        headers: paths of the files that it included.
        options: options of clang that come before its arguments, by which it compiles for another processor.
        stdin: file of what it got as standard input, if it compiled that.
        saved: contents of its sources that the build made, by their absolute paths. It may have removed or changed them
            since.
    """

    directory: str
    program: str
    arguments: DriverArguments
    headers: frozenset[str]
    options: tuple[str, ...] = ()
    stdin: Path | None = None
    saved: Mapping[str, str] = field(default_factory=dict)

    def path(self, name: str) -> str:
        """Return the absolute path of a file that an argument names."""
        return os.path.normpath(os.path.join(self.directory, name))

    def run_clang(self, clang: Path, arguments: Sequence[str], errors: str) -> subprocess.CompletedProcess[str]:
        """Run a clang on other arguments in place of the compiler, and return what it did.

        Args:
            errors: how bytes of its output that are not UTF-8 are decoded.
        """
        driver = ["--driver-mode=g++"] if "+" in self.program else []
        with (self.stdin or Path(os.devnull)).open("rb") as stdin:
            command: list[str | Path] = [clang, *driver, *self.options, *arguments, "-w", "-Qunused-arguments"]
            return capture(command, _TIMEOUT_S, errors, cwd=self.directory, stdin=stdin)

    @contextmanager
    def with_saved_sources(self) -> Iterator[None]:
        """Let the sources have the contents that the compiler read, for a while."""
        changed = {}
        for name, content in self.saved.items():
            now = Path(name).read_bytes() if os.path.isfile(name) else None
            # A shell that saves a file leaves out line breaks at its end.
            if os.path.isdir(os.path.dirname(name)) and (now is None or now.rstrip(b"\n") != os.fsencode(content)):
                changed[Path(name)] = now
                Path(name).write_bytes(os.fsencode(content) + b"\n")
        try:
            yield
        finally:
            for path, old in changed.items():
                if old is None:
                    path.unlink()
                else:
                    path.write_bytes(old)

    @property
    def sources(self) -> list[str]:
        """Absolute paths of the sources of C and C++."""
        names = (name for name, language in self.arguments.inputs if language or not is_linked_input(name))
        return [self.path(name) for name in names if name != "-" and not name.endswith(_ASSEMBLY)]

    @property
    def words(self) -> Sequence[str]:
        return self.arguments.words

    @property
    def output(self) -> str:
        """Absolute path of the file that it links."""
        return self.path(self.arguments.output or "a.out")

    @property
    def compiles_text(self) -> bool:
        """Whether it compiles a source of C or C++, which may be its standard input."""
        return bool(self.sources or self.stdin)

    @property
    def links(self) -> bool:
        """Whether it links."""
        options = self.arguments
        return not options.compiles and not options.other and bool(options.inputs)

    @property
    def object(self) -> str:
        """Absolute path of the object that it writes, "" if it writes none."""
        options = self.arguments
        if not options.compiles or options.other:
            return ""
        if options.output is not None:
            return self.path(options.output)
        sources = self.sources
        return self.path(os.path.splitext(os.path.basename(sources[0]))[0] + ".o") if len(sources) == 1 else ""


def is_linked_input(name: str) -> bool:
    """Return whether an input of a driver is for the linker."""
    return name.endswith(_LINKED) or re.search(r"\.so\.[\d.]+$", name) is not None


def read_calls(
    records: Path, dropped: Collection[str] = (), cross_options: Mapping[str, tuple[str, ...]] | None = None
) -> list[Call]:
    """Return the calls of compilers, without `dropped` arguments, but for those of checks of build systems.

    Args:
        cross_options: clang's options for the compilers whose names have a prefix.
    """
    calls = []
    for path in sorted(records.iterdir()):
        if path.suffix:
            continue
        headers, contents, made = None, _contents(path, RESPONSE_FILES), _contents(path, SOURCES)
        saved = {os.path.normpath(os.path.join(*place)): content for place, content in made.items()}
        stdin = path.with_name(path.name + STDIN)
        for directory, program, *words in _records_of(path):
            if _is_check(directory, words):
                continue
            with suppress(UserError):
                expanded = _expand(words, directory, contents)
                arguments = read_arguments([word for word in expanded if word not in dropped], directory)
                if headers is None:
                    headers = _headers_of(path, directory)
                options = (own for prefix, own in (cross_options or {}).items() if program.startswith(prefix))
                read = stdin if any(name == "-" for name, _ in arguments.inputs) and stdin.is_file() else None
                calls.append(Call(directory, program, arguments, headers, next(options, ()), read, saved))
    return calls


def _is_check(directory: str, words: Iterable[str]) -> bool:
    """Return whether a compiler compiles a trial program of a build system."""
    files = (word.removeprefix("-o") for word in words if word.startswith("-o") or not word.startswith("-"))
    return _CHECK_DIRECTORY.search(directory) is not None or any(map(_CHECK_FILE.search, files))


@dataclass(frozen=True)
class LinkerCall:
    """A call of a linker by its own name, with an object of LTO."""

    directory: str
    words: tuple[str, ...]

    def path(self, name: str) -> str:
        """Return the absolute path of a file that an argument names."""
        return os.path.normpath(os.path.join(self.directory, name))

    @property
    def output(self) -> str:
        """Absolute path of the file that it writes."""
        return self.path(next((after for word, after in itertools.pairwise(self.words) if word == "-o"), "a.out"))


def read_linker_calls(records: Path) -> list[LinkerCall]:
    """Return the calls of linkers that builds make without a compiler."""
    calls = []
    for path in sorted(records.glob(f"*{LINKERS}")):
        calls += [LinkerCall(directory, tuple(words)) for directory, _, *words in _records_of(path)]
    return calls


def linker_words(words: Iterable[str]) -> Iterator[str]:
    """Yield the words of a driver's command line with each word for the linker by itself, as -Wl,WORD, and -z with the
    word behind it, as -Wl,-z,WORD."""
    single = _single_linker_words(iter(words))
    for word in single:
        yield f"-Wl,-z,{next(single, '').removeprefix('-Wl,')}" if word in ("-z", "-Wl,-z") else word


def _single_linker_words(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        if word == "-Xlinker":
            yield f"-Wl,{next(words, '')}"
        elif word.startswith("-Wl,"):
            yield from (f"-Wl,{part}" for part in word.removeprefix("-Wl,").split(","))
        else:
            yield word


def read_readers(records: Path) -> list[str]:
    """Return the commands that read objects of LTO by programs that understand ELF only."""
    commands = []
    for path in sorted(records.glob(f"*{READERS}")):
        commands += [" ".join(words) for directory, *words in _records_of(path) if not _is_check(directory, words[1:])]
    return list(dict.fromkeys(commands))


def _contents(path: Path, suffix: str) -> dict[tuple[str, str], str]:
    """Return the contents of the recorded files of a process, by working directory and argument."""
    place = path.with_name(path.name + suffix)
    records = _records_of(place) if place.is_file() else ()
    return {(directory, word): content for directory, word, content in records}


def _expand(words: Sequence[str], directory: str, contents: Mapping[tuple[str, str], str]) -> Iterator[str]:
    for word in words:
        content = contents.get((directory, word))
        if content is None:
            yield word
        else:
            inner = split_response_file(os.fsencode(content), Path(directory, word[1:]))
            others = {place: text for place, text in contents.items() if place[1] != word}
            yield from _expand(inner, directory, others)


def _headers_of(path: Path, directory: str) -> frozenset[str]:
    with suppress(OSError):
        text = path.with_name(path.name + HEADERS).read_text(encoding="utf-8", errors="surrogateescape")
        return frozenset(os.path.normpath(os.path.join(directory, line)) for line in text.splitlines())
    return frozenset()


def _records_of(path: Path) -> Iterator[list[str]]:
    """Yield the records of a file: number of words, words, each with a NUL at its end."""
    words = path.read_bytes().decode("utf-8", "surrogateescape").split("\0")
    at = 0
    while at < len(words) and words[at].isdigit():
        count = int(words[at])
        yield words[at + 1 : at + 1 + count]
        at += 1 + count
