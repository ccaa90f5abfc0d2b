"""Manifests: their content, and detection of damaged artifacts."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.platform.errors import UserError
from components.platform.storage import digest, publish, read_manifest, require_artifact, verify, write_manifest
from components.platform.storage.digests import file_digest, json_digest


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    directory = tmp_path / "trace"
    (directory / "deep").mkdir(parents=True)
    (directory / "b").write_bytes(b"123456789")
    (directory / "deep" / "a").write_bytes(b"")
    (directory / "link").symlink_to("b")
    (directory / "folder-link").symlink_to("deep")
    write_manifest(directory)
    return directory


def test_lists_every_file_sorted_with_cloud_storage_checksums(artifact: Path) -> None:
    # The check value of CRC-32C for "123456789" is 0xE3069283 (RFC 3720, B.4, gives the polynomial).
    checksum = base64.b64encode(struct.pack(">I", 0xE3069283)).decode()
    assert json.loads((artifact / "manifest.json").read_text()) == {
        "version": 1,
        "files": [
            {"name": "b", "bytes": 9, "crc32c": checksum},
            {"name": "deep/a", "bytes": 0, "crc32c": "AAAAAA=="},
            {"name": "folder-link", "link": "deep"},
            {"name": "link", "link": "b"},
        ],
    }


def test_written_manifest_is_read_back(artifact: Path) -> None:
    assert [entry.name for entry in read_manifest(artifact).files] == ["b", "deep/a", "folder-link", "link"]
    verify(artifact)
    assert require_artifact(artifact, "trace", verify_content=True) == read_manifest(artifact)


def test_digest_depends_only_on_names_and_content(artifact: Path, tmp_path: Path) -> None:
    before = digest(artifact)
    os.utime(artifact / "b", (0, 0))
    write_manifest(artifact)
    moved = artifact.rename(tmp_path / "elsewhere")
    assert digest(moved) == before
    (moved / "b").write_bytes(b"123456780")
    write_manifest(moved)
    assert digest(moved) != before


def test_changed_byte_is_detected_by_checksum(artifact: Path) -> None:
    (artifact / "b").write_bytes(b"123456780")
    require_artifact(artifact, "trace")  # same size: only the content shows the change
    with pytest.raises(UserError, match="differs: b"):
        require_artifact(artifact, "trace", verify_content=True)


@pytest.mark.parametrize("damage", ["truncate", "remove", "relink", "replace by a link"])
def test_missing_and_truncated_files_are_named(artifact: Path, damage: str) -> None:
    if damage == "truncate":
        (artifact / "b").write_bytes(b"12")
    elif damage == "remove":
        (artifact / "b").unlink()
    elif damage == "relink":
        (artifact / "link").unlink()
        (artifact / "link").symlink_to("deep/a")
    else:
        (artifact / "b").unlink()
        (artifact / "b").symlink_to("deep/a")
    named = "link" if damage == "relink" else "b"
    with pytest.raises(UserError, match=named):
        require_artifact(artifact, "trace")


def test_missing_and_unfinished_artifact_errors_name_the_step(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="mlgo trace"):
        require_artifact(tmp_path / "nowhere", "trace")
    with pytest.raises(UserError, match=r"finished policy(.|\n)*mlgo ppo"):
        require_artifact(tmp_path, "policy")


@given(
    content=st.one_of(
        st.binary(max_size=60),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["version", "files", "name", "bytes", "crc32c", "link"]), inner, max_size=4
                )
            ),
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_any_file_content_is_read_or_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("artifact")
    (directory / "manifest.json").write_bytes(content)
    try:
        read_manifest(directory)
    except UserError as error:
        assert "manifest" in str(error)


def test_forged_file_of_a_policy_is_noticed(tmp_path: Path) -> None:
    """Of equal size and crc32c, which is linear: four bytes make any file have any checksum."""
    good, evil = b"good" + bytes(4000), b"evil" + bytes(4000)
    with publish(tmp_path / "policy", "policy") as directory:
        (directory / "policy.so").write_bytes(good)
    before = digest(tmp_path / "policy")
    forged = forge(evil, google_crc32c.value(good))
    (tmp_path / "policy" / "policy.so").write_bytes(forged)
    assert google_crc32c.value(forged) == google_crc32c.value(good) and forged != good
    with pytest.raises(UserError, match=r"policy\.so"):
        verify(tmp_path / "policy")
    write_manifest(tmp_path / "policy", kind="policy")
    assert digest(tmp_path / "policy") != before


def forge(data: bytes, wanted: int) -> bytes:
    """Return data whose last four bytes are chosen so that its crc32c is `wanted` (Gaussian elimination over GF(2))."""
    head, base = data[:-4], google_crc32c.value(data[:-4] + bytes(4))
    rows: list[tuple[int, int]] = []
    for bit in range(32):
        effect, bits = google_crc32c.value(head + (1 << bit).to_bytes(4, "little")) ^ base, 1 << bit
        for other, other_bits in rows:
            if effect ^ other < effect:
                effect, bits = effect ^ other, bits ^ other_bits
        rows = sorted([*rows, (effect, bits)], reverse=True)
    missing, chosen = wanted ^ base, 0
    for effect, bits in rows:
        if missing ^ effect < missing:
            missing, chosen = missing ^ effect, chosen ^ bits
    return head + chosen.to_bytes(4, "little")


def test_digest_of_a_file_is_that_of_its_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert file_digest(tmp_path / "file") == hashlib.sha256(b"content").hexdigest()


def test_digest_of_a_document_is_that_of_its_text_with_sorted_keys() -> None:
    """Names of directories of trainings, searches and RayJobs depend on it."""
    text = b'{"a": [1, "x"], "b": "\\u00e9"}'
    assert json_digest({"b": "é", "a": [1, "x"]}) == hashlib.sha256(text).hexdigest()
