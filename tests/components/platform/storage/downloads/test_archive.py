"""Archives on web servers in place of a directory; unpacking: tests/components/core/projects/test_source.py."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from components.core.formats.policy import load_policy_info
from components.core.policy.pretrained import pretrained_policy
from components.platform.errors import UserError
from components.platform.storage.downloads.archive import fetch_archive, is_archive_url
from components.platform.storage.options import ARTIFACT, OUTPUT
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
    with pytest.raises(UserError, match="has an unsupported scheme"):
        OUTPUT.convert(url, None, None)


def test_urls_of_object_storage_are_no_archives() -> None:
    assert is_archive_url("https://example.com/a.zip#sha256=1") and is_archive_url("http://localhost:80/a")
    assert not any(map(is_archive_url, ("gs://bucket/a", "https:///a", "file:///a", "a", "git:llvmorg-19")))
