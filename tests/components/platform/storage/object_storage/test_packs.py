"""Packs: files read back unchanged, whole or by range, also by other tools."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.manifest import ManifestEntry, digest, scan_directory
from components.platform.storage.object_storage import fetch, packs
from components.platform.storage.object_storage.confined_files import create_file_below
from components.platform.storage.object_storage.file_cache import download_files
from components.platform.storage.object_storage.packs import MIN_FILES, Pack, group_into_packs, parse, unpack, write
from components.platform.storage.object_storage.remote import is_complete, read_remote_manifest
from components.platform.storage.uri import ObjectUri, mirror

names = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=60).filter(
    lambda name: name not in (".", "..", "manifest.json") and len(name.encode()) < 200
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(names, st.binary(max_size=2000), min_size=1, max_size=12))
def test_every_file_is_read_back_from_a_pack(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    root = tmp_path_factory.mktemp("pack")
    (root / "in").mkdir()
    for name, content in files.items():
        (root / "in" / name).write_bytes(content)
    entries = scan_directory(root / "in")
    pack = write(root / "in", entries, root / "0000.tar")
    content = (root / "0000.tar").read_bytes()
    assert {name: content[begin : begin + len(files[name])] for name, begin in pack.offsets.items()} == files
    (root / "out").mkdir()
    unpack(
        root / "0000.tar",
        [(e, pack.offsets[e.name], partial(create_file_below, root / "out", e.name)) for e in entries],
    )
    assert {e.name: e.crc32c for e in scan_directory(root / "out")} == {e.name: e.crc32c for e in entries}
    with tarfile.open(root / "0000.tar") as tar:  # as other tools read it
        assert {member.name: tar.extractfile(member).read() for member in tar} == files  # type: ignore[union-attr]


def test_pack_list_is_parsed_or_refused() -> None:
    pack = Pack("@packs/0000.tar", 10, "AAAAAA==", {"a/b": 512})
    files = [ManifestEntry("a/b")]
    assert parse({"packs": [pack.to_json()]}, files, "here", "") == (pack,)
    assert parse({}, files, "here", "") == ()
    for wrong in ([{}], [7], {"a": 1}, [{"name": "x", "bytes": "many", "crc32c": "", "offsets": {}}]):
        with pytest.raises(UserError, match="invalid"):
            parse({"packs": wrong}, files, "here", "")


def fill(directory: Path, count: int) -> None:
    """Write `count` modules, an empty file, a program, a link and a large file."""
    (directory / "a").mkdir()
    for i in range(count):
        (directory / "a" / f"{i:03}.bc").write_bytes(os.urandom(500 + i))
        (directory / "a" / f"{i:03}.cmd").write_bytes(b"-cc1\0" * i)
    (directory / "empty").touch()
    (directory / "program").write_text("#!/bin/sh\n")
    (directory / "program").chmod(0o755)
    (directory / "link").symlink_to("program")
    (directory / "large").write_bytes(os.urandom(packs.MAX_FILE_BYTES))


def objects(uri: ObjectUri) -> list[str]:
    from components.platform.storage.object_storage.gcs import bucket_of

    return sorted(blob.name.removeprefix(f"{uri.path}/") for blob in bucket_of(uri).list_blobs(prefix=f"{uri.path}/"))


def test_artifact_of_many_files_becomes_few_objects(gs_uri: ObjectUri, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "PACK_BYTES", 20_000)
    uri = gs_uri / "corpus"
    with publish(mirror(uri), "trace") as partial:
        fill(partial, MIN_FILES)
    local = digest(mirror(uri))
    remote = read_remote_manifest(uri)
    assert len(remote.packs) > 1 and len(objects(uri)) == len(remote.packs) + 2  # the large file and the manifest
    assert is_complete(remote)
    shutil.rmtree(mirror(uri))
    back = fetch.fetch(uri)
    assert digest(back) == local  # the digest does not depend on packing
    assert os.access(back / "program", os.X_OK) and (back / "link").is_symlink()
    assert not list(back.parent.glob(".*"))


def test_few_files_and_unpacked_artifacts_are_single_objects(gs_uri: ObjectUri) -> None:
    for name, count, packing in (("few", 3, True), ("plain", MIN_FILES, False)):
        with publish(mirror(gs_uri / name), "trace", packing) as partial:
            fill(partial, count)
        assert read_remote_manifest(gs_uri / name).packs == ()
        assert len(objects(gs_uri / name)) == 2 * count + 3 + 1
    with publish(mirror(gs_uri / "plain"), "trace") as partial:
        shutil.copytree(mirror(gs_uri / "few"), partial, symlinks=True, dirs_exist_ok=True)
        (partial / "manifest.json").unlink()
    with publish(mirror(gs_uri / "plain"), "trace", packing=False) as partial:  # replaces a packed artifact
        fill(partial, MIN_FILES)
    assert read_remote_manifest(gs_uri / "plain").packs == ()


def test_single_files_are_read_by_range(gs_uri: ObjectUri, tmp_path: Path) -> None:
    uri = gs_uri / "corpus"
    with publish(mirror(uri), "trace") as partial:
        fill(partial, MIN_FILES)
    remote = read_remote_manifest(uri)
    names = ["a/007.bc", "a/007.cmd", "a/063.bc", "empty", "large", "a/000.cmd"]
    download_files(remote, [entry for entry in remote.files if entry.name in names], tmp_path / "some")
    for name in names:
        assert (tmp_path / "some" / name).read_bytes() == (mirror(uri) / name).read_bytes()
    assert len(scan_directory(tmp_path / "some")) == len(names)


@pytest.mark.parametrize("whole", [True, False])
def test_damaged_pack_is_detected(gs_uri: ObjectUri, tmp_path: Path, whole: bool) -> None:
    from components.platform.storage.object_storage.gcs import bucket_of

    uri = gs_uri / "corpus"
    with publish(mirror(uri), "trace") as partial:
        fill(partial, MIN_FILES)
    remote = read_remote_manifest(uri)
    (pack,) = remote.packs
    blob = bucket_of(uri).blob((uri / remote.data / pack.name).path)
    content = bytearray(blob.download_as_bytes())
    content[pack.offsets["a/050.bc"]] ^= 1
    blob.upload_from_string(bytes(content))
    assert not is_complete(remote)
    shutil.rmtree(mirror(uri))
    with pytest.raises(UserError, match=r"damaged.*a/050\.bc"):
        if whole:
            fetch.fetch(uri)
        else:
            download_files(remote, [e for e in remote.files if e.name == "a/050.bc"], tmp_path / "some")
    assert not mirror(uri).exists() and not (tmp_path / "some" / "a" / "050.bc").exists()


def test_plan_keeps_the_order_of_names(tmp_path: Path) -> None:
    fill(tmp_path, MIN_FILES)
    (group,) = group_into_packs(scan_directory(tmp_path))
    assert [entry.name for entry in group] == sorted(entry.name for entry in group)
    assert "large" not in {entry.name for entry in group} and "link" not in {entry.name for entry in group}
    (tmp_path / packs.FOLDER).mkdir()
    (tmp_path / packs.FOLDER / "mine").touch()
    assert group_into_packs(scan_directory(tmp_path)) == []  # an artifact's own @packs folder is not overwritten
    assert json.loads(json.dumps(group[0].to_json()))["name"] == group[0].name
