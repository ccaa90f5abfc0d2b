"""links.json of a corpus: how the build that it comes from linked its programs and shared libraries.

With it a report links them again, from the corpus' modules compiled by other clangs, and from the other files of the
build where they are.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from components.platform.storage.input_files import read_document

LINKS = "links.json"
VERSION = 1
LinksSource = Literal["recorded", "ninja", "CMake", "none"]
"""Who said how the build links: its compilers, ninja's or CMake's files, nobody."""
Lto = Literal["full", "thin"]
ModuleLto = Literal["full", "thin", "mixed"]
"""The same of a module; "mixed" if equal objects of it are compiled for several kinds or not all for one."""


class Link(Struct, frozen=True):
    """A link by a compiler's driver.

    Attributes:
        directory: absolute path of the directory that it ran in.
        cxx: whether the driver was that of C++.
        arguments: of the driver, those of response files in their places.
        output: absolute path of the linked file.
    """

    directory: str
    cxx: bool
    arguments: tuple[str, ...]
    output: str


class BuildLinks(Struct, frozen=True):
    """The content of links.json.

    Attributes:
        tree: absolute path of the directory that the names of linked files are relative to: the build's.
        source: who said how the build links.
        links: in the order of the build.
        modules: `embedded_digest` of an object -> the module that was extracted from it.
        problem: why there are no links; "" if there are.
        lto: module -> the LTO that the build's own flags compile it for; None if no compile command is known. The
            compilers that embed bitcode append -fno-lto.
    """

    tree: str
    source: LinksSource
    links: tuple[Link, ...]
    modules: dict[str, str]
    problem: str = ""
    lto: dict[str, ModuleLto] | None = None
    version: int = VERSION


def write_links(directory: Path, links: BuildLinks) -> None:
    """Write links.json into the directory of a corpus."""
    (directory / LINKS).write_bytes(msgspec.json.format(msgspec.json.encode(links), indent=1))


def read_links(directory: Path) -> BuildLinks | None:
    """Return how the build of a corpus links; None for a corpus without links.json. UserError if it is damaged."""
    path = directory / LINKS
    if not path.is_file():
        return None
    return read_document(path, BuildLinks, "the links of a build", "extract the corpus again", VERSION)


def embedded_digest(bitcode: memoryview, command: memoryview) -> str:
    """Return a digest of what -fembed-bitcode=all writes into an object, which `strip` and `ar` do not change."""
    digest = hashlib.sha256(bitcode)
    digest.update(command)
    return digest.hexdigest()
