"""SHA-256 of files and documents."""

from __future__ import annotations

import hashlib
from pathlib import Path

from components.platform.storage.digests import file_digest, json_digest


def test_digest_of_a_file_is_that_of_its_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert file_digest(tmp_path / "file") == hashlib.sha256(b"content").hexdigest()


def test_digest_of_a_document_is_that_of_its_text_with_sorted_keys() -> None:
    """Names of directories of trainings, searches and RayJobs depend on it."""
    text = b'{"a": [1, "x"], "b": "\\u00e9"}'
    assert json_digest({"b": "é", "a": [1, "x"]}) == hashlib.sha256(text).hexdigest()
