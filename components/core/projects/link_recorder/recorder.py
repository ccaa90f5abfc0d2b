"""Writes the stand-in for lld into a build, and reads what it recorded.

The objects of such a build are bitcode that no pass has changed. The script `ld.lld` links them with lld's full LTO and
keeps the module that lld hands to the optimizer: all bitcode of the program, in which only the symbols are visible
that lld found to be exported, or used by assembly, prebuilt libraries and linker scripts.

A record is a directory of files: arguments (of lld, each ends with NUL), directory (that lld ran in), output, level (of
the compiles), status (of lld), messages (of lld), header (first bytes of the output), module.bc, which is missing if
the link failed or had no bitcode, and of a build that is gone `exists`, if the output existed in the end.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.core.compiler.objects.elf import ET_DYN, LINKED_TYPES, elf_type
from components.core.projects.compiler_scripts import SCRIPT_DIRECTORY, write_executable
from components.core.projects.response_files import split_response_file
from components.platform.errors import UserError
from components.platform.storage.input_files import read_bytes, read_text

_SCRIPT = Path(__file__).with_name("ld.lld")
_CONFIG = "links.conf"
LINKER = "ld.lld"
LINKS = "links"
"""Name of the directory of the records next to the script."""
_PASSES = "default<O1>"
_PREFIX = "link-"
_REMEDY = "build again with the compilers of mlgo corpus compilers --unit program"
_CHECK = re.compile(r"/conftest[^/]*$|/_configtest[^/]*$|/CMakeFiles/|/cmTC_[^/]*$|/meson-private/")
"""What configure, CMake, Meson and distutils link to learn about the compiler."""

COMPILE_FLAGS = ("-flto", "-fno-fat-lto-objects", "-g0", "-Xclang", "-disable-llvm-passes", "-Qunused-arguments")
"""Flags of a compile to bitcode that no pass has changed. Debug data would make modules several times larger."""


def link_flags(directory: str) -> list[str]:
    """Return clang's flags of a link by the script in `directory`."""
    return ["-flto", "-fuse-ld=lld", f"--ld-path={directory}/{LINKER}", "-Qunused-arguments"]


@dataclass(frozen=True)
class RecordedLink:
    """One link of a build.

    Attributes:
        output: absolute path of the linked file.
        arguments: of lld, with those of its response file.
        directory: that lld ran in.
        level: optimization level of the compiles, "-Oz".
        elf_type: of the linked file, ET_EXEC and so on; 0 if it is no ELF file.
        module: the program's module; None if the link failed or had no bitcode.
        exists: whether the linked file exists, or did when the build ended and its records were collected.
    """

    record: Path
    output: str
    arguments: tuple[str, ...]
    directory: str
    level: str
    status: int
    messages: str
    elf_type: int
    module: Path | None
    exists: bool

    @property
    def linked(self) -> bool:
        """Whether the output is a program or a shared library, not the result of a relocatable link."""
        return self.elf_type in LINKED_TYPES

    @property
    def position_independent(self) -> bool:
        """Whether lld generated position-independent code."""
        return self.elf_type == ET_DYN


def find_lld(clang: Path) -> Path:
    """Return the lld next to a clang, which reads its bitcode. UserError if there is none."""
    lld = clang.resolve().parent / LINKER
    if not os.access(lld, os.X_OK):
        raise UserError(
            f"there is no {LINKER} next to {clang.resolve()}, which links programs of bitcode",
            "install the package lld of the same version, such as lld-19",
        )
    return lld


def write_recorder(directory: Path, lld: str | Path, links: str | Path, level: str, memory_gib: int = 0) -> None:
    """Write the script and its settings into `directory`. The caller makes the directory of its records.

    Args:
        links: absolute path of the records' directory, or one that starts from `$here`, the script's directory.
        memory_gib: limit of lld's memory, 0 for none.
    """
    shutil.copyfile(_SCRIPT, directory / LINKER)
    (directory / LINKER).chmod(0o755)
    settings = {
        "LLD": shlex.quote(str(lld)),
        "LINKS": str(links) if str(links).startswith("$here") else shlex.quote(str(links)),
        "LEVEL": shlex.quote(level),
        "PASSES": shlex.quote(_PASSES),
        "MEMORY_KIB": str(memory_gib * 1024 * 1024),
    }
    (directory / _CONFIG).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def write_recording_linkers(directory: Path, lld: Path, level: str, memory_gib: int = 0) -> None:
    """Write the script and `ld`, which runs it, into a directory of compilers, with the directory of their records."""
    write_recorder(directory, lld, f"$here/{LINKS}", level, memory_gib)
    (directory / LINKS).mkdir()
    write_executable(directory / "ld", f'exec {SCRIPT_DIRECTORY}/{LINKER} "$@"\n')


def read_links(directory: Path) -> list[RecordedLink]:
    """Return the last link of each output in a directory of records, or in the directory of the compilers.

    Links of configure's and other checks are left out.

    Raises:
        UserError: the directory has no records.
    """
    folder = directory / LINKS if (directory / LINKER).is_file() else directory
    records = sorted(folder.glob(f"{_PREFIX}*"), key=lambda path: ((path / "status").stat().st_mtime_ns, path.name))
    if not records:
        raise UserError(f"{folder} has no record of a link", _REMEDY)
    last: dict[str, RecordedLink] = {}
    for record in records:
        link = _read(record)
        last.pop(link.output, None)
        last[link.output] = link
    return [link for link in last.values() if not _CHECK.search(link.output)]


def _read(record: Path) -> RecordedLink:
    text = {name: read_text(record / name, _REMEDY) for name in ("directory", "output", "level", "status")}
    arguments = read_bytes(record / "arguments", _REMEDY).decode("utf-8", "surrogateescape").split("\0")[:-1]
    response = record / "response"
    if response.is_file():
        added = split_response_file(read_bytes(response, _REMEDY), response)
        arguments = [word for argument in arguments for word in (added if argument[:1] == "@" else [argument])]
    header = (record / "header").read_bytes() if (record / "header").is_file() else b""
    module = record / "module.bc"
    output = os.path.normpath(os.path.join(text["directory"], text["output"]))
    return RecordedLink(
        record,
        output,
        tuple(arguments),
        text["directory"],
        text["level"],
        int(text["status"]),
        (record / "messages").read_bytes().decode(errors="replace"),
        elf_type(header),
        module if module.is_file() else None,
        os.path.isfile(output) or (record / "exists").is_file(),
    )


def input_files(arguments: Sequence[str], directory: str) -> Iterable[str]:
    """Yield the paths of objects and static libraries in lld's arguments, without those of the system."""
    searched = [word[2:] for word in arguments if word.startswith("-L") and len(word) > 2]
    for word in arguments:
        if word.startswith("-l"):
            candidates = (os.path.join(directory, folder, f"lib{word[2:]}.a") for folder in searched)
            path = next((path for path in candidates if os.path.isfile(path)), "")
            if not path or os.path.isfile(f"{path[:-2]}.so"):
                continue
        else:
            path = os.path.join(directory, word)
        if not word.startswith("-") or word.startswith("-l"):
            real = os.path.realpath(path)
            if os.path.isfile(real) and not real.startswith(("/usr/", "/lib")):
                yield path
