"""Small JSON documents that several processes write: read with a version, written only if the version is unchanged.

This is the one primitive of shared state: leases, lists of checkpoints, and the state of retraining are such documents.
Each write adds

    "write": {"by": "process 7 on HOST", "number": number of writes so far, "word": random}

so that no two are equal: neither two processes with the same state, such as copies of a machine, nor a document that
was changed and changed back. docs/storage.md, "Shared state", has what holds and what is assumed of the store.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from components.platform.errors import UserError
from components.platform.storage.directory import make_directory
from components.platform.storage.input_files import MissingFile, parse_json, read_bytes
from components.platform.storage.object_storage.object_store import VersionConflict
from components.platform.storage.object_storage.shared_write import write_shared
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.output_files import replace_bytes
from components.platform.storage.shared_state.file_lock import exclusive_lock
from components.platform.storage.shared_state.process_identity import ProcessIdentity
from components.platform.storage.uri import USAGE, ObjectUri, parse_location

_MISSING_VERSION = "nothing"
"""Version of a local document that does not exist."""
_WRITE = "write"
_LOCK_PATIENCE_S = 60.0
"""How long a local document may be locked: a write takes milliseconds."""


@dataclass(frozen=True)
class VersionedJson:
    """A JSON document and its version.

    Attributes:
        content: None if the document does not exist yet.
        version: opaque; `write_versioned` compares it.
        number: of writes so far.
        word: random word of the last write; "" if an earlier version of this program wrote it.
    """

    content: dict[str, Any] | None
    version: str
    number: int = 0
    word: str = ""


def read_versioned(location: str) -> VersionedJson:
    """Read the JSON object at a path or URI. UserError if it is not one, or object storage does not answer."""
    parsed = parse_location(location)
    if isinstance(parsed, Path) and (not location or parsed.is_dir()):
        raise UserError(f"{location!r} is not a file name", f"write it as {USAGE}.json or a path")
    text, version = store_of(parsed).read(parsed) if isinstance(parsed, ObjectUri) else _read_local(parsed)
    if text is None:
        return VersionedJson(None, version)
    remedy = "restore an older version, or remove it"
    content = parse_json(text, location, remedy)
    if not isinstance(content, dict):
        raise UserError(f"{location} is not a JSON object", remedy)
    write = content.pop(_WRITE, None)
    number, word = (write.get("number"), write.get("word")) if isinstance(write, dict) else (0, "")
    return VersionedJson(content, version, number if type(number) is int else 0, str(word))


class Conflict(UserError):
    """The document was modified concurrently; nothing was written."""


def write_versioned(
    location: str, content: Mapping[str, Any], before: VersionedJson, word: str | None = None
) -> VersionedJson:
    """Replace a document if its version is still that of `before`; return the new document and version.

    Args:
        before: what `read_versioned` or an earlier call returned.
        word: a new random one, by which the caller recognizes its write after a StorageError; None: any.

    Raises:
        Conflict: the document has another version by now, and this content does not appear later.
        UserError: object storage refuses or does not answer; the document may be written, or be so later.
    """
    parsed = parse_location(location)
    after = VersionedJson(dict(content), "", before.number + 1, word or secrets.token_hex(8))
    write = {"by": str(ProcessIdentity.here()), "number": after.number, "word": after.word}
    text = (json.dumps({**content, _WRITE: write}, indent=1) + "\n").encode()
    try:
        if isinstance(parsed, ObjectUri):
            version = write_shared(parsed, text, before.version).version
        else:
            version = _write_local(parsed, text, before.version)
    except (VersionConflict, _Replaced):
        raise Conflict(f"{location} was modified concurrently", "run the same command again") from None
    return replace(after, version=version)


def silent_s(location: str, document: VersionedJson) -> float:
    """Return how long ago a document was written, by the clock of its store; 0 if it has another version by now.

    Both times are the store's: clocks of machines may differ. On a network file system it is the file server's.
    """
    parsed = parse_location(location)
    if isinstance(parsed, ObjectUri):
        stored = store_of(parsed).head(parsed)
        if stored is None or stored.version != document.version or stored.updated is None:
            return 0.0
        return (store_of(parsed).server_time(parsed) - stored.updated).total_seconds()
    lock = _lock_path(parsed)
    lock.touch()
    with suppress(FileNotFoundError):
        return lock.stat().st_mtime - parsed.stat().st_mtime if _read_local(parsed)[1] == document.version else 0.0
    return 0.0


class _Replaced(Exception):
    """A local document has another version."""


def _read_local(path: Path) -> tuple[bytes | None, str]:
    try:
        text = read_bytes(path)
    except MissingFile:
        return None, _MISSING_VERSION
    return text, hashlib.sha256(text).hexdigest()


def _write_local(path: Path, text: bytes, version: str) -> str:
    make_directory(path.parent, path)
    with exclusive_lock(_lock_path(path), f"waiting for another process that writes {path}", limit_s=_LOCK_PATIENCE_S):
        if _read_local(path)[1] != version:
            raise _Replaced
        replace_bytes(path, text, flush=True)
    return hashlib.sha256(text).hexdigest()


def _lock_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")
