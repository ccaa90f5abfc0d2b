"""Small JSON documents with concurrent writers: read with a version, written only if the version is unchanged."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.platform.errors import UserError
from components.platform.storage.directory import make_directory
from components.platform.storage.input_files import MissingFile, parse_json, read_bytes
from components.platform.storage.object_storage.object_store import VersionConflict
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.output_files import replace_bytes
from components.platform.storage.shared_state.file_lock import exclusive_lock
from components.platform.storage.uri import USAGE, ObjectUri, parse_location

_MISSING_VERSION = "nothing"
"""Version of a local document that does not exist."""


@dataclass(frozen=True)
class VersionedJson:
    """A JSON document and its version.

    Attributes:
        content: None if the document does not exist yet.
        version: opaque; `write_versioned` compares it.
    """

    content: dict[str, Any] | None
    version: str


def read_versioned(location: str) -> VersionedJson:
    """Read the JSON object at a path or URI. UserError if it is not one, or object storage does not answer."""
    parsed = parse_location(location)
    if isinstance(parsed, Path) and (not location or parsed.is_dir()):
        raise UserError(f"{location!r} is not a file name", f"write it as {USAGE}.json or a path")
    text, version = _read_remote(parsed) if isinstance(parsed, ObjectUri) else _read_local(parsed)
    if text is None:
        return VersionedJson(None, version)
    remedy = "restore an older version, or remove it"
    content = parse_json(text, location, remedy)
    if not isinstance(content, dict):
        raise UserError(f"{location} is not a JSON object", remedy)
    return VersionedJson(content, version)


class Conflict(UserError):
    """The document was modified concurrently; nothing was written."""


def write_versioned(location: str, content: dict[str, Any], before: VersionedJson) -> VersionedJson:
    """Replace a document if its version is still that of `before`; return the new document and version.

    Args:
        before: what `read_versioned` or an earlier call returned.

    Raises:
        Conflict: the document has another version by now.
        UserError: object storage refuses or does not answer; the document may have been written nevertheless.
    """
    parsed = parse_location(location)
    text = (json.dumps(content, indent=1) + "\n").encode()
    written = (
        _write_remote(parsed, text, before.version)
        if isinstance(parsed, ObjectUri)
        else _write_local(parsed, text, before.version)
    )
    if not written:
        raise Conflict(f"{location} was modified concurrently", "run the same command again")
    return VersionedJson(content, written)


def _read_remote(uri: ObjectUri) -> tuple[bytes | None, str]:
    return store_of(uri).read(uri)


def _write_remote(uri: ObjectUri, text: bytes, version: str) -> str:
    """Return the version of the written document, or "" if the document's version is not `version`."""
    writer = secrets.token_hex(8)
    store = store_of(uri)
    try:
        return store.write(uri, text, version, writer).version
    except VersionConflict:
        # May still be ours, if only the answer to a first attempt was lost.
        current = store.head(uri)
        return current.version if current and current.writer == writer else ""


def _read_local(path: Path) -> tuple[bytes | None, str]:
    try:
        text = read_bytes(path)
    except MissingFile:
        return None, _MISSING_VERSION
    return text, hashlib.sha256(text).hexdigest()


def _write_local(path: Path, text: bytes, version: str) -> str:
    make_directory(path.parent, path)
    with exclusive_lock(path.with_name(f".{path.name}.lock")):
        if _read_local(path)[1] != version:
            return ""
        replace_bytes(path, text, flush=True)
    return hashlib.sha256(text).hexdigest()
