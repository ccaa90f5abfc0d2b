"""Debian source packages from a small local repository, fetched by the real apt."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage.downloads import debsource
from components.platform.storage.downloads.debsource import download_deb_source, fetch_deb_source

pytestmark = pytest.mark.skipif(
    shutil.which("apt-get") is None or shutil.which("dpkg-source") is None, reason="needs apt and dpkg-dev"
)
DEB822 = """# comment
Types: deb
URIs: file:{repository}
Suites: {suite}
Components: main
Trusted: yes

Types: deb
URIs: https://vendor.invalid/apt
Suites: stable
Components: main

Enabled: no
Types: deb
URIs: https://disabled.invalid/apt
Suites: {suite}
Components: main
"""
ONE_LINE = """# deb file:/nowhere {suite} main
deb [trusted=yes] file:{repository} {suite} main
deb-src [trusted=yes] file:{repository} {suite} main
deb https://vendor.invalid/apt vendor-{suite} main
"""


@pytest.fixture(params=["deb822", "one line"])
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up a repository with the source package toy 1.0 and an /etc/apt that lists it; return the repository."""
    repository = tmp_path / "repository"
    (repository / "pool").mkdir(parents=True)
    add_toy(repository, "1.0")
    suite = debsource._codename()
    etc = tmp_path / "etc-apt"
    (etc / "sources.list.d").mkdir(parents=True)
    if request.param == "deb822":
        (etc / "sources.list.d/toy.sources").write_text(DEB822.format(repository=repository, suite=suite))
    else:
        (etc / "sources.list").write_text(ONE_LINE.format(repository=repository, suite=suite))
    (etc / "sources.list.d/other.list.save").write_text(f"deb file:/nowhere {suite} main\n")
    monkeypatch.setattr(debsource, "_SOURCE_LISTS", etc)
    return repository


def add_toy(repository: Path, version: str) -> None:
    """Add a version of the source package toy to a repository and rebuild its index."""
    source = repository.parent / f"toy-{version}"
    (source / "debian/source").mkdir(parents=True)
    (source / "toy.c").write_text("int toy;\n")
    (source / "debian/source/format").write_text("3.0 (native)\n")
    (source / "debian/changelog").write_text(
        f"toy ({version}) unstable; urgency=low\n\n  * One.\n\n -- A B <a@b.invalid>  Mon, 01 Jan 2024 00:00:00 +0000\n"
    )
    (source / "debian/control").write_text(
        "Source: toy\nMaintainer: A B <a@b.invalid>\nStandards-Version: 4.6.0\n\n"
        "Package: toy\nArchitecture: any\nDescription: toy\n"
    )
    subprocess.run(["dpkg-source", "-b", source.name], cwd=source.parent, check=True, capture_output=True)
    for path in source.parent.glob(f"toy_{version}*"):
        path.rename(repository / "pool" / path.name)
    suite = debsource._codename()
    index = repository / f"dists/{suite}/main/source"
    index.mkdir(parents=True, exist_ok=True)
    scan = subprocess.run(["dpkg-scansources", "pool"], cwd=repository, check=True, capture_output=True, text=True)
    (index / "Sources").write_text(scan.stdout)
    sums = hashlib.sha256(scan.stdout.encode()).hexdigest()
    (repository / f"dists/{suite}/Release").write_text(
        f"Suite: {suite}\nCodename: {suite}\nComponents: main\nArchitectures: source\n"
        f"SHA256:\n {sums} {len(scan.stdout)} main/source/Sources\n"
    )


def quiet(_: str) -> None:
    pass


def test_package_is_fetched_unpacked_and_cached(machine: Path, tmp_path: Path) -> None:
    messages: list[str] = []
    tree = fetch_deb_source("toy", tmp_path / "cache", tmp_path / "work/toy", messages.append)
    assert (tree / "toy.c").read_text() == "int toy;\n"
    assert len(messages) == 2, "one line for fetching the lists, one for the package"
    files = download_deb_source("toy", tmp_path / "cache", messages.append)
    assert [path.suffix for path in files] == [".dsc", ".xz"] and len(messages) == 2
    shutil.rmtree(machine)
    assert fetch_deb_source("toy", tmp_path / "cache", tmp_path / "again", messages.append).is_dir(), "from the cache"


def test_damaged_download_is_fetched_again(machine: Path, tmp_path: Path) -> None:
    archive = download_deb_source("toy", tmp_path / "cache", quiet)[1]
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-5] + b"other")
    assert download_deb_source("toy", tmp_path / "cache", quiet)[1].read_bytes() == whole


def test_archive_damaged_on_the_mirror_is_refused(machine: Path, tmp_path: Path) -> None:
    archive = next((machine / "pool").glob("*.tar.xz"))
    archive.write_bytes(archive.read_bytes()[:-5] + b"other")
    with pytest.raises(UserError, match="toy"):
        fetch_deb_source("toy", tmp_path / "cache", tmp_path / "toy", quiet)
    assert not (tmp_path / "toy").exists()


def test_older_version_is_fetched_if_the_mirror_lacks_the_newest(machine: Path, tmp_path: Path) -> None:
    add_toy(machine, "1.10")
    add_toy(machine, "1.9")
    for path in (machine / "pool").glob("toy_1.10*"):
        path.unlink()
    messages: list[str] = []
    files = download_deb_source("toy", tmp_path / "cache", messages.append)
    assert {path.name for path in files} == {"toy_1.9.dsc", "toy_1.9.tar.xz"}
    assert "took version 1.9" in messages[-1]
    for path in (machine / "pool").iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"toy: .*toy_1\.10"):
        download_deb_source("toy", tmp_path / "other", quiet)


def test_unknown_package_is_named(machine: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no-such-package") as caught:
        download_deb_source("no-such-package", tmp_path / "cache", quiet)
    assert "package" in caught.value.remedy


def test_error_without_a_source_list_for_this_release(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debsource, "_codename", lambda: "warty")
    with pytest.raises(UserError, match="'warty'"):
        download_deb_source("toy", tmp_path / "cache", quiet)


@pytest.mark.parametrize(
    ("url", "reason", "remedy"),
    [
        ("http://mirror.invalid/debian", "resol", "whether this machine reaches mirror.invalid"),
        ("http://127.0.0.1:9/debian", "refused", "whether this machine reaches 127.0.0.1"),
        ("file:/nowhere", "/nowhere", "the network"),
    ],
)
def test_error_names_the_server_that_is_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, reason: str, remedy: str
) -> None:
    etc = tmp_path / "etc-apt"
    etc.mkdir()
    (etc / "sources.list").write_text(f"deb {url} {debsource._codename()} main\n")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):  # a proxy would answer in words of its own
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(debsource, "_SOURCE_LISTS", etc)
    with pytest.raises(UserError) as caught:
        download_deb_source("toy", tmp_path / "cache", quiet)
    assert "source packages" in caught.value.problem
    assert reason in caught.value.problem
    assert remedy in caught.value.remedy
    # Nothing is remembered: the next attempt fetches the list again.
    assert not (tmp_path / "cache/apt/lists-fetched").exists()


def test_missing_apt_or_dpkg_source_error_has_a_remedy(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download_deb_source("toy", tmp_path / "cache", quiet)
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UserError, match="no apt-get"):
        download_deb_source("other", tmp_path / "cache", quiet)
    only_apt = tmp_path / "bin"
    only_apt.mkdir()
    (only_apt / "apt-get").symlink_to("/usr/bin/apt-get")
    monkeypatch.setenv("PATH", str(only_apt))
    with pytest.raises(UserError, match="dpkg-source") as caught:
        fetch_deb_source("unknown", tmp_path / "new", tmp_path / "toy", quiet)
    assert "dpkg-dev" in caught.value.remedy and not (tmp_path / "new").exists(), "before the download"
