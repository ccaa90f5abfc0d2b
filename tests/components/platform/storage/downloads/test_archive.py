"""Archives on web servers in place of a directory; unpacking: tests/components/core/projects/test_source.py."""

from __future__ import annotations

import hashlib
import os
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from components.core.formats.policy import load_policy_info
from components.core.policy.pretrained import pretrained_policy
from components.platform.errors import UserError
from components.platform.storage.downloads.archive import fetch_archive, is_archive_url, unpack
from components.platform.storage.options import ARTIFACT, OUTPUT, skip_fetch
from tests.servers.http_server import serve


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an archive of a policy, with its checksum."""
    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / "cache"))
    served = tmp_path / "served"
    served.mkdir()
    with tarfile.open(served / "policy.tar.gz", "w:gz") as file:
        file.add(pretrained_policy("inlining"), "policy")
    checksum = hashlib.sha256((served / "policy.tar.gz").read_bytes()).hexdigest()
    with serve(served) as address:
        yield f"{address}/policy.tar.gz#sha256={checksum}"


def test_archive_is_downloaded_and_unpacked_once(url: str, tmp_path: Path) -> None:
    policy = fetch_archive(url)
    assert load_policy_info(policy).problem == "inlining"
    (tmp_path / "served/policy.tar.gz").unlink()
    assert fetch_archive(url) == policy == fetch_archive(url.replace("/policy.", "/other-name."))


def test_option_takes_the_place_of_a_directory(url: str) -> None:
    @click.command()
    @click.option("--policy", type=ARTIFACT)
    def command(policy: Path) -> None:
        click.echo(load_policy_info(policy).problem)

    done = CliRunner().invoke(command, ["--policy", url], catch_exceptions=False)
    assert done.output.splitlines()[-1] == "inlining"


@pytest.mark.parametrize("fragment", ["", "#", "#sha256=", "#sha256=123", "#md5=" + "0" * 32, "#sha256=" + "g" * 64])
def test_archive_without_a_checksum_is_refused(url: str, fragment: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no SHA-256") as error:
        fetch_archive(url.partition("#")[0] + fragment)
    assert "sha256sum" in error.value.remedy and not (tmp_path / "cache/web").exists()


def test_archive_with_another_checksum_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has the SHA-256 [0-9a-f]{64}, its URL says 0000"):
        fetch_archive(url.partition("#")[0] + "#sha256=" + "0" * 64)
    assert not list((tmp_path / "cache/web/archives").iterdir())


def test_outputs_are_no_archives(url: str) -> None:
    with pytest.raises(UserError, match="scheme"):
        OUTPUT.convert(url, None, None)


def test_urls_of_object_storage_are_no_archives() -> None:
    assert is_archive_url("https://example.com/a.zip#sha256=1") and is_archive_url("http://localhost:80/a")
    assert not any(map(is_archive_url, ("gs://bucket/a", "https:///a", "file:///a", "a", "git:llvmorg-19")))


def packed(directory: Path, kind: str = "tar") -> Path:
    """Return an archive of a directory, next to it."""
    archive = directory.parent / f"{directory.name}.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as file:
            for path in sorted(directory.rglob("*")):
                file.write(path, path.relative_to(directory.parent))
    else:
        with tarfile.open(archive, "w") as file:
            file.add(directory, directory.name)
    return archive


def test_tar_that_ends_with_a_zip_is_a_tar(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    np.savez(tmp_path / "p/weights.npz", w=np.zeros(3))
    archive = packed(tmp_path / "p")
    assert zipfile.is_zipfile(archive), "as Python takes it"
    assert [path.name for path in unpack(archive, tmp_path / "out").iterdir()] == ["weights.npz"]


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_programs_stay_executable(tmp_path: Path, kind: str) -> None:
    (tmp_path / "p/bin").mkdir(parents=True)
    (tmp_path / "p/bin/clang").write_text("#!/bin/sh")
    (tmp_path / "p/bin/clang").chmod(0o4755)
    mode = (unpack(packed(tmp_path / "p", kind), tmp_path / "out") / "bin/clang").stat().st_mode
    assert mode & 0o7777 == 0o755, "and do not run as another user"


def test_links_stay_in_the_tree(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p/a").touch()
    (tmp_path / "p/b").symlink_to("a")
    assert (unpack(packed(tmp_path / "p"), tmp_path / "1", confined=True) / "b").is_symlink()
    (tmp_path / "p/etc").symlink_to("/etc")
    with pytest.raises(UserError, match="p/etc"):
        unpack(packed(tmp_path / "p"), tmp_path / "2", confined=True)
    (tmp_path / "q").symlink_to("/etc")
    with tarfile.open(tmp_path / "q.tar", "w") as file:
        file.add(tmp_path / "q", "q")
    with pytest.raises(UserError, match="link q"):
        unpack(tmp_path / "q.tar", tmp_path / "3", confined=True)
    assert not (unpack(tmp_path / "q.tar", tmp_path / "4") / "passwd").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"p", "p.tar", "q", "q.tar", "1", "4"}


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    os.mkfifo(tmp_path / "p/pipe")
    with pytest.raises(UserError, match="p/pipe"):
        unpack(packed(tmp_path / "p"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_archive_is_refused_where_only_object_storage_is_read(url: str) -> None:
    context = click.Context(click.Command("command"))
    skip_fetch(context, "a RayJob reads object storage only")
    with pytest.raises(UserError, match="scheme"):
        ARTIFACT.convert(url, None, context)
