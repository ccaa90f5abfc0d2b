"""Downloads single files of an artifact: objects of their own, or ranges of packs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

import google_crc32c

from components.platform.errors import UserError
from components.platform.storage.directory import make_directory
from components.platform.storage.manifest import ManifestEntry
from components.platform.storage.object_storage.confined_files import create_file_below
from components.platform.storage.object_storage.packs import Pack
from components.platform.storage.object_storage.remote import RemoteManifest
from components.platform.storage.object_storage.stores import store_of

GAP_BYTES = 64 << 10
"""Files of a pack at most this far apart are read in one request: a request costs more than transferring the gap."""


def download_files(remote: RemoteManifest, entries: Sequence[ManifestEntry], into: Path) -> None:
    """Write these regular files of the artifact below `into`, which need not exist.

    Raises:
        UserError: files are missing or differ from the manifest; object storage refuses or does not answer.
    """
    make_directory(into)
    content: dict[str, bytes] = {}
    for pack in remote.packs:
        inside = [entry for entry in entries if entry.name in pack.offsets]
        for group in _group_by_distance(inside, pack):
            content |= _read_range(remote, group, pack)
    for entry in entries:
        if entry.name not in content:
            content[entry.name] = store_of(remote.uri).read_range(remote.uri / remote.data / entry.name)
        _check(remote, entry, content[entry.name])
        with create_file_below(into, entry.name) as stream:
            stream.write(content[entry.name])


def _group_by_distance(entries: Sequence[ManifestEntry], pack: Pack) -> list[list[ManifestEntry]]:
    groups: list[list[ManifestEntry]] = []
    end = 0
    for entry in sorted(entries, key=lambda entry: pack.offsets[entry.name]):
        if not groups or pack.offsets[entry.name] - end > GAP_BYTES:
            groups.append([])
        groups[-1].append(entry)
        end = pack.offsets[entry.name] + entry.size_bytes
    return groups


def _read_range(remote: RemoteManifest, entries: Sequence[ManifestEntry], pack: Pack) -> dict[str, bytes]:
    start = pack.offsets[entries[0].name]
    end = pack.offsets[entries[-1].name] + entries[-1].size_bytes
    data = b""
    if end > start:
        data = store_of(remote.uri).read_range(remote.uri / remote.data / pack.name, start, end)
    begins = ((entry, pack.offsets[entry.name] - start) for entry in entries)
    return {entry.name: data[begin : begin + entry.size_bytes] for entry, begin in begins}


def _check(remote: RemoteManifest, entry: ManifestEntry, data: bytes) -> None:
    crc32c = base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
    if (len(data), crc32c) != (entry.size_bytes, entry.crc32c):
        raise UserError(f"{remote.uri} is damaged: the content of {entry.name} differs", "make it again")
