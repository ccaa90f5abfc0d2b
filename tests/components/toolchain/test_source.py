"""Matching LLVM source from an archive, a git tag or a directory; other versions are refused."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage.downloads import retry
from components.platform.storage.uri import ObjectUri
from components.toolchain import source
from components.toolchain.sdk import Sdk
from tests.servers.http_server import OverloadedServer, serving
from tests.support.buckets import put_object


@pytest.fixture
def sdk(tmp_path: Path) -> Sdk:
    return Sdk(tmp_path / "sdk", 19, "19.1.7")


def tree(root: Path, version: str = "19.1.7") -> Path:
    """Write a tree of the files to compile, each with its name as content, and one further file."""
    major, minor, patch = version.split(".")
    for name in (*source.source_files(19), "llvm/README.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"// {name}\n")
    (root / source.VERSION_FILE).write_text(
        "".join(
            f"if(NOT DEFINED LLVM_VERSION_{part})\n  set(LLVM_VERSION_{part} {value})\nendif()\n"
            for part, value in (("MAJOR", major), ("MINOR", minor), ("PATCH", patch))
        )
    )
    return root


def test_source_directory_is_used_in_place(tmp_path: Path, sdk: Sdk) -> None:
    root = tree(tmp_path / "llvm-project")
    assert source.fetch_source_files(str(root), sdk, tmp_path / "cache") == root
    assert not (tmp_path / "cache").exists()


def test_sdk_of_an_earlier_version_is_refused(sdk: Sdk) -> None:
    assert source.find_bundled_source(sdk) is None
    bundled = tree(sdk.prefix / source.BUNDLED)
    assert source.find_bundled_source(sdk) == bundled
    (bundled / "lld/ELF/Config.h").unlink()
    with pytest.raises(UserError, match=r"lacks LLVM's lld/ELF/Config\.h") as caught:
        source.find_bundled_source(sdk)
    assert "--mode sdk" in caught.value.remedy


def test_source_of_another_version_or_an_incomplete_one_is_refused(tmp_path: Path, sdk: Sdk) -> None:
    with pytest.raises(UserError, match=r"18\.1\.8.*19\.1\.7") as caught:
        source.fetch_source_files(str(tree(tmp_path / "llvm-project", "18.1.8")), sdk, tmp_path / "cache")
    assert "git:llvmorg-19.1.7" in caught.value.remedy
    (tree(tmp_path / "llvm-project") / "clang/tools/driver/driver.cpp").unlink()
    with pytest.raises(UserError, match=r"driver\.cpp"):
        source.fetch_source_files(str(tmp_path / "llvm-project"), sdk, tmp_path / "cache")


def pack(root: Path, archive: Path, top: str) -> Path:
    with tarfile.open(archive, "w:xz") as packed:
        packed.add(root, top)
    return archive


def test_only_needed_files_of_an_archive_are_unpacked_and_damage_is_reported(tmp_path: Path) -> None:
    archive = pack(tree(tmp_path / "t"), tmp_path / "llvm-toolchain-19_19.1.7.orig.tar.xz", "llvm-toolchain-19_19.1.7")
    into = tmp_path / "into"
    into.mkdir()
    source.unpack(archive, into, source.source_files(19))
    unpacked = {path.relative_to(into).as_posix() for path in into.rglob("*") if path.is_file()}
    assert unpacked == set(source.source_files(19))
    archive.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(UserError, match="cannot unpack"):
        source.unpack(archive, tmp_path, source.source_files(19))


def git(*arguments: str | Path) -> None:
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@example.com")
    subprocess.run(["git", *identity, *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository that replaces LLVM's, with the tag llvmorg-19.1.7 and a later one."""
    root = tree(tmp_path / "upstream")
    git("init", "-q", root)
    git("-C", root, "config", "uploadpack.allowFilter", "true")
    for version in ("19.1.7", "20.1.0"):
        tree(root, version)
        git("-C", root, "add", ".")
        git("-C", root, "commit", "-q", "-m", version)
        git("-C", root, "tag", f"llvmorg-{version}")
    monkeypatch.setattr(source, "REPOSITORY", f"file://{root}")
    return root


def test_tag_is_fetched_once(repository: Path, tmp_path: Path, sdk: Sdk) -> None:
    fetched = source.fetch_source_files("git:llvmorg-19.1.7", sdk, tmp_path / "cache")
    name = "llvm/lib/Analysis/MLInlineAdvisor.cpp"
    assert (fetched / name).read_text() == f"// {name}\n"
    assert not (fetched / "llvm/README.txt").exists()
    repository.rename(tmp_path / "gone")
    assert source.fetch_source_files("git:llvmorg-19.1.7", sdk, tmp_path / "cache") == fetched


def test_unknown_tag_and_that_of_another_version_are_refused_and_not_cached(
    repository: Path, tmp_path: Path, sdk: Sdk
) -> None:
    with pytest.raises(UserError, match=r"20\.1\.0.*19\.1\.7"):
        source.fetch_source_files("git:llvmorg-20.1.0", sdk, tmp_path / "cache")
    assert not (tmp_path / "cache" / "llvm-source").exists()
    with pytest.raises(UserError, match=r"git:llvmorg-1\.0"):
        source.fetch_source_files("git:llvmorg-1.0", sdk, tmp_path / "cache")


@pytest.mark.parametrize(("status", "attempts"), [(503, 3), (404, 1)])
def test_only_passing_failures_of_a_fetch_are_repeated(
    tmp_path: Path, sdk: Sdk, monkeypatch: pytest.MonkeyPatch, status: int, attempts: int
) -> None:
    server = OverloadedServer(statuses=[status] * 9)
    monkeypatch.setattr(retry, "PAUSES_S", (0.0, 0.0))
    with serving(server) as url:
        monkeypatch.setattr(source, "REPOSITORY", f"{url}/llvm.git")
        with pytest.raises(UserError, match=r"cannot fetch --llvm-source git:llvmorg-19\.1\.7: "):
            source.fetch_source_files("git:llvmorg-19.1.7", sdk, tmp_path / "cache")
    assert len(server.requests) == attempts and not (tmp_path / "cache/llvm-source").exists()


@pytest.fixture
def location(gs_uri: ObjectUri, tmp_path: Path) -> ObjectUri:
    """Return a URI with the files of a tree, for clusters that reach nothing else; other tools upload no manifest."""
    root = tree(tmp_path / "llvm-project")
    for path in root.rglob("*"):
        if path.is_file():
            put_object(gs_uri, path.relative_to(root).as_posix(), path.read_bytes())
    return gs_uri


def test_source_in_object_storage_is_downloaded_once(location: ObjectUri, tmp_path: Path) -> None:
    sdk = Sdk(tmp_path, 19, "19.1.7")
    downloaded = source.fetch_source_files(str(location), sdk, tmp_path / "other")
    for name in source.source_files(19):
        assert (downloaded / name).read_bytes() == (tmp_path / "llvm-project" / name).read_bytes()
    times = {path: path.stat().st_mtime_ns for path in downloaded.rglob("*")}
    assert source.fetch_source_files(str(location), sdk, tmp_path / "other") == downloaded
    assert times == {path: path.stat().st_mtime_ns for path in downloaded.rglob("*")}
    assert not (tmp_path / "other").exists()


def test_other_version_and_missing_folder_in_object_storage_are_refused(location: ObjectUri, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"LLVM 19\.1\.7"):
        source.fetch_source_files(str(location), Sdk(tmp_path, 19, "19.1.6"), tmp_path)
    with pytest.raises(UserError, match=f"nothing at {location}/nowhere"):
        source.fetch_source_files(f"{location}/nowhere", Sdk(tmp_path, 19, "19.1.7"), tmp_path)
