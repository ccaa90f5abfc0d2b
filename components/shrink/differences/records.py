"""Reads what the compilers of a build recorded: their command lines, and the headers that they read."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from components.core.projects.compiler_scripts import HEADERS, READERS, RESPONSE_FILES
from components.core.projects.driver_arguments import DriverArguments, read_arguments
from components.core.projects.response_files import split_response_file
from components.platform.errors import UserError

_CHECKS = re.compile(
    r"conftest|cmTC_|CMakeFiles/(?:CMakeTmp|CMakeScratch)|/CompilerId|meson-private|\bsanitycheck[a-z]*\.[a-z]+$"
)
"""Directories and files of the trial programs of build systems, as in compiler_scripts.py."""
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
    """

    directory: str
    program: str
    arguments: DriverArguments
    headers: frozenset[str]
    options: tuple[str, ...] = ()

    def path(self, name: str) -> str:
        """Return the absolute path of a file that an argument names."""
        return os.path.normpath(os.path.join(self.directory, name))

    def run_clang(self, clang: Path, arguments: Sequence[str], errors: str) -> subprocess.CompletedProcess[str]:
        """Run a clang on other arguments in place of the compiler, and return what it did.

        Args:
            errors: how bytes of its output that are not UTF-8 are decoded.
        """
        driver = ["--driver-mode=g++"] if "+" in self.program else []
        return subprocess.run(
            [clang, *driver, *self.options, *arguments, "-w", "-Qunused-arguments"],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors=errors,
            timeout=_TIMEOUT_S,
        )

    @property
    def sources(self) -> list[str]:
        """Absolute paths of the sources of C and C++."""
        names = (name for name, language in self.arguments.inputs if language or not is_linked_input(name))
        return [self.path(name) for name in names if name != "-" and not name.endswith(_ASSEMBLY)]

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
        headers, contents = None, _response_files(path)
        for directory, program, *words in _records_of(path):
            if _CHECKS.search(directory) or any(_CHECKS.search(word) for word in words):
                continue
            with suppress(UserError):
                expanded = _expand(words, directory, contents)
                arguments = read_arguments([word for word in expanded if word not in dropped], directory)
                if headers is None:
                    headers = _headers_of(path, directory)
                options = (own for prefix, own in (cross_options or {}).items() if program.startswith(prefix))
                calls.append(Call(directory, program, arguments, headers, next(options, ())))
    return calls


def read_readers(records: Path) -> list[str]:
    """Return the commands that read objects of LTO by programs that understand ELF only."""
    commands = []
    for path in sorted(records.glob(f"*{READERS}")):
        commands += [" ".join(words) for _, *words in _records_of(path)]
    return list(dict.fromkeys(commands))


def _response_files(path: Path) -> dict[tuple[str, str], str]:
    """Return the contents of the response files of a process, by working directory and argument."""
    place = path.with_name(path.name + RESPONSE_FILES)
    records = _records_of(place) if place.is_file() else ()
    return {(directory, word): content for directory, word, content in records}


def _expand(words: Sequence[str], directory: str, contents: Mapping[tuple[str, str], str]) -> Iterator[str]:
    for word in words:
        content = contents.get((directory, word))
        if content is None:
            yield word
        else:
            yield from split_response_file(os.fsencode(content), Path(directory, word[1:]))


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
