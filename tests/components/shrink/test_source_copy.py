"""Copies of source trees: what is left out, and what stays."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.shrink.source_copy import SourceTree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    for name in (
        "src/a.c",
        "src/a.o",
        "src/.libs/b.lo",
        "Makefile",
        "build/CMakeCache.txt",
        "build/x/app",
        "data/x.png",
    ):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (directory / "out" / "meson-private").mkdir(parents=True)
    (directory / "link").symlink_to("src/a.c")
    return directory


def names(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir()}


def test_objects_and_build_directories_are_left_out(tree: Path, tmp_path: Path) -> None:
    source = SourceTree(tree, ("data/",))
    source.check()
    assert source.build_directories() == ["build", "out"]
    (tree / "mlgo-shrink").mkdir()
    (tree / "mlgo-shrink" / "shrink.json").touch()
    source.copy(tmp_path / "copy", [tree / "mlgo-shrink"])
    assert names(tmp_path / "copy") == {"src/a.c", "Makefile", "link"}
    assert (tmp_path / "copy" / "link").is_symlink()


def test_times_are_kept(tree: Path, tmp_path: Path) -> None:
    """configure is newer than configure.ac, so make does not generate it again."""
    os.utime(tree / "Makefile", (1_000_000_000, 1_000_000_000))
    SourceTree(tree).copy(tmp_path / "copy")
    assert (tmp_path / "copy" / "Makefile").stat().st_mtime == 1_000_000_000


def test_version_from_git_is_that_of_the_source(tree: Path, tmp_path: Path) -> None:
    def git(directory: Path, *arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, text=True
        ).stdout

    git(tree, "init", "-q")
    git(tree, "add", "src/a.c", "Makefile")
    git(tree, "commit", "-qm", "first")
    git(tree, "tag", "-a", "v7.1", "-m", "release")
    SourceTree(tree).copy(tmp_path / "copy")
    assert git(tmp_path / "copy", "describe") == "v7.1\n"
    assert not (tmp_path / "copy/.git/objects/pack").exists()
    git(tmp_path / "copy", "commit", "-qm", "second", "--allow-empty")
    assert git(tree, "rev-list", "--count", "HEAD") == "1\n"


def test_build_directory_as_source_is_refused(tree: Path) -> None:
    with pytest.raises(UserError, match="is a build directory of CMake"):
        SourceTree(tree / "build").check()
    with pytest.raises(UserError, match="nowhere is no directory"):
        SourceTree(tree / "nowhere").check()
