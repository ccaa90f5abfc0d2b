"""A small JSON document that several may change: read with its version, written only if that is still the version."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.console import UserError
from components.storage.directory import make_directory
from components.storage.input_files import MissingFile, parse_json, read_bytes
from components.storage.uri import GsUri, parse_place

_NOTHING = "nothing"
"""The version of a local document that does not exist."""


@dataclass(frozen=True)
class Document:
    """content: None where there is no document yet. version: opaque, for `write_document`."""

    content: dict[str, Any] | None
    version: str


def read_document(place: str) -> Document:
    """The JSON object at a path or gs:// URI. UserError if it is none, or object storage does not answer."""
    where = parse_place(place)
    if isinstance(where, Path) and (not place or where.is_dir()):
        raise UserError(f"{place!r} is not the name of a JSON document", "write it as gs://BUCKET/PATH.json or a path")
    text, version = _read_remote(where) if isinstance(where, GsUri) else _read_local(where)
    if text is None:
        return Document(None, version)
    remedy = "restore an older one, or remove it"
    content = parse_json(text, place, remedy)
    if not isinstance(content, dict):
        raise UserError(f"{place} is not a JSON document with keys and values", remedy)
    return Document(content, version)


class Conflict(UserError):
    """Somebody else changed the document meanwhile; nothing was written."""


def write_document(place: str, content: dict[str, Any], before: Document) -> Document:
    """Replaces the document that `before` was read from, or an earlier call returned; returns what stands there now.

    Raises:
        Conflict: it is not the version of `before` any more.
        UserError: object storage refuses or does not answer; it may have been written all the same.
    """
    where = parse_place(place)
    text = (json.dumps(content, indent=1) + "\n").encode()
    written = (
        _write_remote(where, text, before.version)
        if isinstance(where, GsUri)
        else _write_local(where, text, before.version)
    )
    if not written:
        raise Conflict(f"somebody else changed {place} meanwhile", "run the same command again")
    return Document(content, written)


def _read_remote(uri: GsUri) -> tuple[bytes | None, str]:
    from components.storage.gcs import read_object

    text, generation = read_object(uri)
    return text, str(generation)


def _write_remote(uri: GsUri, text: bytes, version: str) -> str:
    """The version of what was written, "" if `version` is not what is there."""
    from google.api_core.exceptions import PreconditionFailed

    from components.storage.gcs import bucket_of, explained, request

    writer = secrets.token_hex(8)
    blob = bucket_of(uri).blob(uri.path)
    blob.metadata = {"writer": writer}
    with explained(uri):
        try:
            blob.upload_from_string(
                text, "application/json", if_generation_match=int(version), checksum="crc32c", **request()
            )
        except PreconditionFailed:
            # Ours all the same if only the answer to a first attempt was lost.
            found = bucket_of(uri).get_blob(uri.path, **request())
            if found is None or (found.metadata or {}).get("writer") != writer:
                return ""
            return str(found.generation)
    return str(blob.generation)


def _read_local(path: Path) -> tuple[bytes | None, str]:
    try:
        text = read_bytes(path)
    except MissingFile:
        return None, _NOTHING
    return text, hashlib.sha256(text).hexdigest()


def _write_local(path: Path, text: bytes, version: str) -> str:
    make_directory(path.parent, path)
    with open(path.with_name(f".{path.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _read_local(path)[1] != version:
            return ""
        fresh = path.with_name(f".{path.name}.new")
        with open(fresh, "wb") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(fresh, path)
    return hashlib.sha256(text).hexdigest()
