"""SHA-256 of files and of documents, in hexadecimal."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def json_digest(document: object) -> str:
    """Return the SHA-256 of a document of plain values, which does not depend on the order of keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
