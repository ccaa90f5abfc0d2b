"""Packs: objects that hold many small files of an artifact. A corpus is 40,000 files of a few kilobytes.

Writing or reading an object costs one request, 5 to 20 ms on any server; a pack costs that once. A pack is an
uncompressed tar archive, which any tool reads, and the manifest has the offset of each file in it, so that a worker
reads one module by range. Files of MAX_FILE_BYTES and more stay objects of their own.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from components.platform.storage.manifest import READ_BYTES, ManifestEntry, NotAManifest, check_name, checksum

FOLDER = "@packs"
"""Name of the packs' folder below the data folder. Artifacts with a folder of that name are not packed."""
MIN_FILES = 64
MAX_FILE_BYTES = 1 << 20
PACK_BYTES = 64 << 20


@dataclass(frozen=True)
class Pack:
    """An object that holds several files.

    Attributes:
        name: path below the artifact's data folder.
        offsets: file name -> byte offset of its content in the pack.
    """

    name: str
    size_bytes: int
    crc32c: str
    offsets: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the pack's entry in manifest.json."""
        return {"name": self.name, "bytes": self.size_bytes, "crc32c": self.crc32c, "offsets": dict(self.offsets)}


def group_into_packs(entries: Iterable[ManifestEntry]) -> list[list[ManifestEntry]]:
    """Group files into packs: no packs, or all small files in the order of their names.

    Adjacent names stay adjacent: one request reads a module's bitcode and its command line.
    """
    small = [entry for entry in entries if not entry.link and entry.size_bytes < MAX_FILE_BYTES]
    if len(small) < MIN_FILES or any(entry.name.startswith(f"{FOLDER}/") for entry in small):
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
    """Write a pack of these files of `directory` to `archive`."""
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            header = tarfile.TarInfo(entry.name)
            header.size = entry.size_bytes
            header.mode = 0o755 if entry.executable else 0o644
            with open(directory / entry.name, "rb") as stream:
                tar.addfile(header, stream)
    # Offsets are read back from the archive because long names have headers of their own.
    with tarfile.open(archive) as tar:
        offsets = {member.name: member.offset_data for member in tar}
    size_bytes, crc32c = checksum(archive)
    return Pack(f"{FOLDER}/{archive.name}", size_bytes, crc32c, offsets)


def unpack(archive: Path, entries: Iterable[tuple[ManifestEntry, int, Callable[[], BinaryIO]]]) -> None:
    """Copy files out of a pack. The caller verifies checksums.

    Args:
        entries: (entry, offset in the pack, function that opens the output file).
    """
    with open(archive, "rb") as stream:
        for entry, offset, create in entries:
            stream.seek(offset)
            left = entry.size_bytes
            with create() as output:
                while left > 0 and (block := stream.read(min(left, READ_BYTES))):
                    output.write(block)
                    left -= len(block)


def parse(document: Any, files: Iterable[ManifestEntry], source: str, remedy: str) -> tuple[Pack, ...]:
    """Return the packs of a manifest; most manifests have none.

    Args:
        document: the manifest, read from `source`.
        files: its entries.
        remedy: what to do about an invalid manifest, for errors.

    Raises:
        NotAManifest: the packs cannot be parsed, or list something that is not a file of the artifact or already in
            another pack.
    """
    try:
        packs = tuple(_parse_pack(pack) for pack in document.get("packs", []))
        unpacked = {entry.name for entry in files if not entry.link}
        if len({pack.name for pack in packs}) != len(packs):
            raise ValueError("two packs have the same name")
        for pack in packs:
            if not pack.offsets.keys() <= unpacked:
                raise ValueError(f"{min(pack.offsets.keys() - unpacked)} is packed, but is not a file or packed twice")
            unpacked -= pack.offsets.keys()
        return packs
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise NotAManifest(f"{source} has an invalid list of packs ({error!r})"[:400], remedy) from None


def _parse_pack(pack: Any) -> Pack:
    name, size_bytes, crc32c, offsets = pack["name"], pack["bytes"], pack["crc32c"], dict(pack["offsets"])
    check_name(name)
    if type(size_bytes) is not int or not isinstance(crc32c, str) or not name.startswith(f"{FOLDER}/"):
        raise ValueError(f"invalid pack {name}")
    for file, offset in offsets.items():
        if type(offset) is not int or not 0 <= offset < 2**63:
            raise ValueError(f"{file} has the offset {offset!r}")
    return Pack(name, size_bytes, crc32c, offsets)
