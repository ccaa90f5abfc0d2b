"""Small files of an artifact in object storage, many to an object: a corpus is 40,000 files of a few kilobytes.

An object costs a request, 5 to 20 ms wherever it is, to write and to read; a pack costs that once. A pack is an
uncompressed tar archive, so that any tool reads it, and the manifest says where in it each file begins, so that a
worker reads one module by range. Files of MOST_BYTES and more stay objects of their own.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from components.storage.manifest import READ_BYTES, ManifestEntry, NotAManifest, check_name, checksum

FOLDER = "@packs"
"""Of the data folder. No file of an artifact may be below a folder of that name."""
FEWEST = 64
"""Small files; fewer are not worth a pack."""
MOST_BYTES = 1 << 20
PACK_BYTES = 64 << 20
"""After which the next pack begins."""


@dataclass(frozen=True)
class Pack:
    """An object of several files. name: below the artifact's data folder. offsets: name of a file -> where its content
    begins."""

    name: str
    size_bytes: int
    crc32c: str
    offsets: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "bytes": self.size_bytes, "crc32c": self.crc32c, "offsets": dict(self.offsets)}


def plan(entries: Iterable[ManifestEntry]) -> list[list[ManifestEntry]]:
    """Which files go into a pack together: none, or all that are small, in the order of their names.

    Neighbours stay neighbours: a module's bitcode and its command line are read with one request.
    """
    small = [entry for entry in entries if not entry.link and entry.size_bytes < MOST_BYTES]
    if len(small) < FEWEST or any(entry.name.startswith(f"{FOLDER}/") for entry in small):
        return []
    packs: list[list[ManifestEntry]] = [[]]
    filled = 0
    for entry in small:
        if filled >= PACK_BYTES:
            packs.append([])
            filled = 0
        packs[-1].append(entry)
        filled += entry.size_bytes
    return packs


def write(directory: Path, entries: Sequence[ManifestEntry], archive: Path) -> Pack:
    """Writes a pack of these files of `directory`."""
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            header = tarfile.TarInfo(entry.name)
            header.size = entry.size_bytes
            header.mode = 0o755 if entry.executable else 0o644
            with open(directory / entry.name, "rb") as stream:
                tar.addfile(header, stream)
    # Where a file begins is known for sure when the archive is read: long names have headers of their own.
    with tarfile.open(archive) as tar:
        offsets = {member.name: member.offset_data for member in tar}
    size_bytes, crc32c = checksum(archive)
    return Pack(f"{FOLDER}/{archive.name}", size_bytes, crc32c, offsets)


def unpack(archive: Path, entries: Iterable[tuple[ManifestEntry, int, Callable[[], BinaryIO]]]) -> None:
    """Copies files out of a pack: (entry, offset, what creates it). Whether they are right, the checksums tell."""
    with open(archive, "rb") as stream:
        for entry, offset, create in entries:
            stream.seek(offset)
            left = entry.size_bytes
            with create() as output:
                while left > 0 and (block := stream.read(min(left, READ_BYTES))):
                    output.write(block)
                    left -= len(block)


def parse(document: Any, files: Iterable[ManifestEntry], place: str, remedy: str) -> tuple[Pack, ...]:
    """The packs of a manifest, none in most.

    Args:
        document: the manifest, read from `place`. files: its entries. remedy: what to do about a manifest that is none.

    Raises:
        NotAManifest: it cannot be read, or a pack has what is no file of the artifact, or is in another pack.
    """
    try:
        packs = tuple(_parse_pack(pack) for pack in document.get("packs", []))
        unpacked = {entry.name for entry in files if not entry.link}
        if len({pack.name for pack in packs}) != len(packs):
            raise ValueError("two packs of one name")
        for pack in packs:
            if not pack.offsets.keys() <= unpacked:
                raise ValueError(f"{min(pack.offsets.keys() - unpacked)} is in a pack, and is no file, or in another")
            unpacked -= pack.offsets.keys()
        return packs
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise NotAManifest(f"{place} says of packs what cannot be read ({error!r})"[:400], remedy) from None


def _parse_pack(pack: Any) -> Pack:
    name, size_bytes, crc32c, offsets = pack["name"], pack["bytes"], pack["crc32c"], dict(pack["offsets"])
    check_name(name)
    if type(size_bytes) is not int or not isinstance(crc32c, str) or not name.startswith(f"{FOLDER}/"):
        raise ValueError(f"the pack {name}")
    for file, offset in offsets.items():
        if type(offset) is not int or not 0 <= offset < 2**63:
            raise ValueError(f"{file} begins at {offset!r}")
    return Pack(name, size_bytes, crc32c, offsets)
