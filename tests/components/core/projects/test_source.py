"""Sources from git, archives and local directories: pinned, verified and never modified."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from components.core.projects.recipe import Recipe, Source
from components.core.projects.source import fetch_recipe, git_commit
from components.platform.errors import UserError
from components.platform.storage.downloads import git, retry
from tests.servers.http_server import OverloadedServer, serve, serving


def fetch(source: Source, where: Path, **recipe: object) -> Path:
    cache = where.parent / "cache"
    cache.mkdir(exist_ok=True)
    options: dict[str, object] = {"cmake_options": (), **recipe}
    return fetch_recipe(Recipe("p", source, **options), where, cache, lambda text: None)  # type: ignore[arg-type]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "p-1.0/lib").mkdir(parents=True)
    (tmp_path / "p-1.0/lib/a.c").write_text("int a;\n")
    (tmp_path / "p-1.0/README").write_text("p\n")
    return tmp_path / "p-1.0"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with serve(tmp_path) as url:
        yield url


def archive(tree: Path, kind: str, server: str) -> Source:
    path = tree.parent / f"p.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as file:
            for item in tree.rglob("*"):
                file.write(item, item.relative_to(tree.parent))
    else:
        with tarfile.open(path, "w:xz" if kind == "tar.xz" else "w:gz") as file:
            if kind == "tar.xz":
                file.add(tree, tree.name)
            else:  # no folder around everything
                file.add(tree / "lib", "lib")
                file.add(tree / "README", "README")
    return Source("url", f"{server}/{path.name}", hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.mark.parametrize("kind", ["tar.xz", "tar.gz", "zip"])
def test_an_archive_is_unpacked_and_kept(tree: Path, tmp_path: Path, kind: str, server: str) -> None:
    source = archive(tree, kind, server)
    assert (fetch(source, tmp_path / "w1") / "lib/a.c").read_text() == "int a;\n"
    (tmp_path / f"p.{kind}").unlink()
    assert (fetch(source, tmp_path / "w2") / "README").exists(), "the second time it comes from the cache"
    assert sorted(path.name for path in (tmp_path / "w1").iterdir()) == ["source"]


def test_archive_with_another_checksum_is_refused(tree: Path, tmp_path: Path, server: str) -> None:
    source = archive(tree, "tar.xz", server)
    with pytest.raises(UserError, match="has the SHA-256"):
        fetch(Source("url", source.location, "0" * 64), tmp_path / "w")
    assert list((tmp_path / "cache/archives").iterdir()) == []


def test_two_builds_that_share_a_cache_download_an_archive_once(tree: Path, tmp_path: Path) -> None:
    pin = archive(tree, "tar.gz", "http://127.0.0.1:1").pin
    content = (tree.parent / "p.tar.gz").read_bytes()
    server = OverloadedServer(content, stops_s=1.0)
    with serving(server) as url, ThreadPoolExecutor(4) as pool:
        slow = Source("url", f"{url}/p.tar.gz", pin)
        sources = list(pool.map(lambda i: fetch(slow, tmp_path / f"w{i}"), range(4)))
    assert [(where / "lib/a.c").read_text() for where in sources] == ["int a;\n"] * 4
    assert len(server.requests) == 1 and len(list((tmp_path / "cache/archives").iterdir())) == 1


@pytest.fixture
def overloaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[OverloadedServer]:
    """A server that answers as its attributes say; attempts follow each other at once."""
    monkeypatch.setattr(retry, "PAUSES_S", (0.0, 0.0))
    server = OverloadedServer(statuses=[503] * 9)
    with serving(server):
        yield server


def test_download_from_an_overloaded_server_is_repeated(
    tree: Path, tmp_path: Path, overloaded: OverloadedServer
) -> None:
    source = archive(tree, "tar.gz", overloaded.url)
    overloaded.content, overloaded.statuses = (tree.parent / "p.tar.gz").read_bytes(), [503, 0]
    assert (fetch(source, tmp_path / "w") / "lib/a.c").read_text() == "int a;\n"
    assert len(overloaded.requests) == 3


@pytest.mark.parametrize("source", [("url", "0" * 64, "cannot download"), ("git", "v1", "cannot clone")])
@pytest.mark.parametrize(("status", "attempts"), [(503, 3), (404, 1)])
def test_only_passing_failures_are_repeated(
    tmp_path: Path, overloaded: OverloadedServer, source: tuple[Any, str, str], status: int, attempts: int
) -> None:
    overloaded.statuses = [status] * 9
    kind, pin, problem = source
    with pytest.raises(UserError, match=problem):
        fetch(Source(kind, f"{overloaded.url}/p.tar.gz", pin), tmp_path / "w")
    assert len(overloaded.requests) == attempts and not (tmp_path / "w/source").exists()


def test_clone_is_repeated_where_a_submodule_was_not_reached(
    tree: Path, tmp_path: Path, overloaded: OverloadedServer
) -> None:
    """Git then leaves the clone, and refuses its directory at the next attempt."""
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")
    (tree / ".gitmodules").write_text(f'[submodule "lib/s"]\n\tpath = lib/s\n\turl = {overloaded.url}/s.git\n')
    submodule = ("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib/s")
    commit = (*identity, "commit", "-q", "-m", "one")
    for command in (("init", "-q"), ("add", "."), submodule, commit, ("tag", "v1")):
        subprocess.run(["git", *command], cwd=tree, check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull})
    messages: list[str] = []
    with pytest.raises(UserError, match=r"cannot clone .* at v1: (?!.*already exists)"):
        fetch_recipe(
            Recipe("p", Source("git", tree.as_uri(), "v1"), cmake_options=()), tmp_path / "w", tmp_path, messages.append
        )
    assert len(messages) == 3 and not (tmp_path / "w/source").exists(), messages
    assert len(overloaded.requests) == 6, "git itself asks twice at each attempt"


def test_invalid_and_missing_archives_are_refused(tmp_path: Path, server: str) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(b"no archive")
    with pytest.raises(UserError, match="cannot unpack"):
        fetch(Source("url", f"{server}/x.tar.gz", hashlib.sha256(b"no archive").hexdigest()), tmp_path / "w")
    assert list((tmp_path / "w").iterdir()) == []
    with pytest.raises(UserError, match=r"cannot download .*404"):
        fetch(Source("url", f"{server}/none.tar", "0" * 64), tmp_path / "v")
    for url in (path.as_uri(), "no-url", "http://", "http://host:99999999/a", "ftp://host/a", "http://[/"):
        with pytest.raises(UserError, match="the URL"):
            fetch(Source("url", url, "0" * 64), tmp_path / "v")


def test_a_corrupt_zip_with_the_right_checksum(tree: Path, tmp_path: Path, server: str) -> None:
    archive(tree, "zip", server)
    path = tmp_path / "p.zip"
    content = bytearray(path.read_bytes())
    for damage in (b"\xff" * 4, b"\x01\x00\x63\x00"):  # a checksum of the central directory; encrypted, unknown method
        at = content.rindex(b"PK\x01\x02") + (16 if damage[0] == 0xFF else 8)
        broken = content[:at] + damage + content[at + 4 :]
        path.write_bytes(broken)
        with pytest.raises(UserError, match="cannot unpack"):
            fetch(Source("url", f"{server}/p.zip", hashlib.sha256(broken).hexdigest()), tmp_path / f"w{damage[0]}")
        assert list((tmp_path / f"w{damage[0]}").iterdir()) == []


def test_a_zip_with_a_damaged_bzip2_member(tmp_path: Path, server: str) -> None:
    path = tmp_path / "p.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as file:
        file.writestr("p/README", b"p" * 100)
    content = bytearray(path.read_bytes())
    at = content.index(b"BZh") + 4
    content[at : at + 6] = b"broken"
    path.write_bytes(content)
    with pytest.raises(UserError, match="cannot unpack"):
        fetch(Source("url", f"{server}/p.zip", hashlib.sha256(content).hexdigest()), tmp_path / "w")


def test_git_clone_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/p.git"
        with pytest.raises(UserError, match="v1"):
            fetch(Source("git", url, "v1"), tmp_path / "w")
    assert not (tmp_path / "w/source").exists()


GIT_IDENTITY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b.invalid",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b.invalid",
    "GIT_CONFIG_GLOBAL": os.devnull,
}


def run_git(tree: Path, *command: str) -> str:
    environment = {**os.environ, **GIT_IDENTITY}
    return subprocess.run(
        ["git", *command], cwd=tree, check=True, env=environment, capture_output=True, text=True
    ).stdout.strip()


def tag_two_commits(tree: Path) -> None:
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"], ["tag", "v1"]):
        run_git(tree, *command)
    (tree / "README").write_text("two\n")
    run_git(tree, "commit", "-qam", "two")


def test_a_tag_is_cloned(tree: Path, tmp_path: Path) -> None:
    tag_two_commits(tree)
    source = fetch(Source("git", tree.as_uri(), "v1"), tmp_path / "w")
    assert (source / "README").read_text() == "p\n"
    with pytest.raises(UserError, match=r"cannot clone .* at v9"):
        fetch(Source("git", tree.as_uri(), "v9"), tmp_path / "v")
    assert not (tmp_path / "v/source").exists()


def test_the_commit_of_a_tag_is_that_which_is_cloned(tree: Path, tmp_path: Path) -> None:
    tag_two_commits(tree)
    one, two = run_git(tree, "rev-parse", "HEAD~"), run_git(tree, "rev-parse", "HEAD")
    source = Source("git", tree.as_uri(), "v1")
    assert git_commit(source, tmp_path / "cache") == one
    run_git(tree, "tag", "-f", "-a", "-m", "moved", "v1")  # annotated, an object of its own
    assert git_commit(source, tmp_path / "cache") == two
    run_git(tree, "branch", "v1", "HEAD~")
    assert git_commit(source, tmp_path / "cache") == one
    assert (fetch(source, tmp_path / "w") / "README").read_text() == "p\n"


def test_the_commit_seen_last_stands_in_for_a_repository_that_cannot_be_read(tree: Path, tmp_path: Path) -> None:
    tag_two_commits(tree)
    source, messages = Source("git", tree.as_uri(), "v1"), list[str]()
    commit = git_commit(source, tmp_path / "cache")
    tree.rename(tree.with_name("away"))
    assert git_commit(source, tmp_path / "cache", messages.append) == commit
    assert messages[-1].startswith("warning: cannot read which commit v1 of ") and commit[:12] in messages[-1]
    with pytest.raises(UserError, match="v1"):
        git_commit(source, tmp_path / "other", messages.append)


def test_a_directory_is_used_in_place_or_copied_where_commands_run(tree: Path, tmp_path: Path) -> None:
    source = Source("path", str(tree))
    linked = fetch(source, tmp_path / "w1")
    assert linked.is_symlink() and (linked / "lib/a.c").exists()
    recipes: list[dict[str, Any]] = [{"cmake_options": None, "commands": ("make",)}, {"prepare": ("true",)}]
    for number, recipe in enumerate(recipes):
        copy = fetch(source, tmp_path / f"c{number}", **recipe)
        assert not copy.is_symlink()
        (copy / "README").write_text("changed\n")
    assert (tree / "README").read_text() == "p\n"
    with pytest.raises(UserError, match="not exist"):
        fetch(Source("path", str(tmp_path / "gone")), tmp_path / "w3")


def test_required_sources_are_placed_next_to_the_source(tree: Path, tmp_path: Path) -> None:
    fetch(Source("path", str(tree)), tmp_path / "w", requires=(("gtest", Source("path", str(tree / "lib"))),))
    assert (tmp_path / "w/gtest/a.c").exists() and (tmp_path / "w/source/README").exists()


def test_copy_below_the_source_itself_is_refused(tmp_path: Path) -> None:
    """It would contain itself, and so on."""
    (tmp_path / "a.c").touch()
    recipe = Recipe("p", Source("path", str(tmp_path)), prepare=("true",))
    with pytest.raises(UserError, match="runs/p/source"):
        fetch_recipe(recipe, tmp_path / "runs" / "p", tmp_path / "cache")
    assert not (tmp_path / "runs" / "p" / "source").exists()
    assert (fetch_recipe(recipe, tmp_path.with_name("apart"), tmp_path / "cache") / "a.c").exists()
