"""LLVM's source in object storage, for clusters that reach nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage.uri import ObjectUri
from components.toolchain import source
from components.toolchain.sdk import Sdk
from tests.components.toolchain.test_source import tree
from tests.support.buckets import put_object


@pytest.fixture
def location(any_uri: ObjectUri, tmp_path: Path) -> ObjectUri:
    """Return a URI with the files of a tree and no manifest, as other tools upload it."""
    root = tree(tmp_path / "llvm-project")
    for path in root.rglob("*"):
        if path.is_file():
            put_object(any_uri, path.relative_to(root).as_posix(), path.read_bytes())
    return any_uri


def test_source_is_downloaded_once(location: ObjectUri, tmp_path: Path) -> None:
    sdk = Sdk(tmp_path, 19, "19.1.7")
    downloaded = source.fetch_source_files(str(location), sdk, tmp_path / "other")
    assert all(
        (downloaded / name).read_bytes() == (tmp_path / "llvm-project" / name).read_bytes()
        for name in source.source_files(19)
    )
    times = {path: path.stat().st_mtime_ns for path in downloaded.rglob("*")}
    assert source.fetch_source_files(str(location), sdk, tmp_path / "other") == downloaded
    assert times == {path: path.stat().st_mtime_ns for path in downloaded.rglob("*")}
    assert not (tmp_path / "other").exists()


def test_other_version_and_missing_folder_are_refused(location: ObjectUri, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"LLVM 19\.1\.7"):
        source.fetch_source_files(str(location), Sdk(tmp_path, 19, "19.1.6"), tmp_path)
    with pytest.raises(UserError, match=f"nothing at {location}/nowhere"):
        source.fetch_source_files(f"{location}/nowhere", Sdk(tmp_path, 19, "19.1.7"), tmp_path)
