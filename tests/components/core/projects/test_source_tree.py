"""Copies of source trees: what is left out, and what stays."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from components.core.projects.source_tree import SourceTree, remove_tree
from components.platform.errors import UserError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    for name in ("src/a.c", "Makefile", "build/CMakeCache.txt", "build/x/app", "data/x.png", "data/teapot.obj"):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("int a;\n")
    (directory / "src/b.lo").write_text("# b.lo - a libtool object file\n")
    for name, flags in (("a.o", []), ("lto.o", ["-flto"]), ("big.o", ["--target=s390x-linux-gnu"])):
        subprocess.run(["clang-19", *flags, "-c", "a.c", "-o", name], cwd=directory / "src", check=True)
    (directory / "out" / "meson-private").mkdir(parents=True)
    (directory / "link").symlink_to("src/a.c")
    return directory


def names(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir()}


def test_objects_and_build_directories_are_left_out(tree: Path, tmp_path: Path) -> None:
    os.utime(tree / "Makefile", (1_000_000_000, 1_000_000_000))
    source = SourceTree(tree, ("x.png",))
    source.check("make")
    assert source.build_directories() == ["build", "out"]
    (tree / "mlgo-shrink").mkdir()
    (tree / "mlgo-shrink" / "shrink.json").touch()
    source.copy(tmp_path / "copy", [tree / "mlgo-shrink"])
    assert names(tmp_path / "copy") == {"src/a.c", "Makefile", "link", "data/teapot.obj"}
    assert (tmp_path / "copy" / "link").is_symlink()
    # configure is newer than configure.ac, so make does not generate it again.
    assert (tmp_path / "copy" / "Makefile").stat().st_mtime == 1_000_000_000


def test_pipes_earlier_outputs_and_the_repository_of_a_worktree_are_left_out(tree: Path, tmp_path: Path) -> None:
    (tree / ".git").write_text(f"gitdir: {tmp_path}/elsewhere\n")
    os.mkfifo(tree / "pipe")
    for name in ("manifest.json", "shrink.json", "files/app"):
        (tree / "out1" / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / "out1" / name).touch()
    SourceTree(tree).copy(tmp_path / "copy")
    assert not (tmp_path / "copy/pipe").exists() and not (tmp_path / "copy/out1").exists()
    assert not (tmp_path / "copy/.git").exists(), "git would change the index and the branch of the worktree"


def test_links_into_the_tree_are_links_into_the_copy(tree: Path, tmp_path: Path) -> None:
    (tree / "absolute").symlink_to(tree / "src")
    (tree / "outside").symlink_to("/usr/include")
    SourceTree(tree).copy(tmp_path / "copy")
    (tmp_path / "copy/absolute/new").touch()
    assert not (tree / "src/new").exists() and (tmp_path / "copy/src/new").exists()
    assert os.readlink(tmp_path / "copy/outside") == "/usr/include"


def test_tree_that_was_configured_in_place_needs_its_configure_step(tree: Path) -> None:
    (tree / "config.status").touch()
    with pytest.raises(UserError, match="in place") as error:
        SourceTree(tree).check("make -j8")
    assert "./configure && make -j8" in error.value.remedy
    SourceTree(tree).check("./configure && make")
    for name, problem in (("build", "CMake"), ("nowhere", "nowhere")):
        with pytest.raises(UserError, match=problem):
            SourceTree(tree / name).check("make")


def test_read_only_parts_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / "tree" / "locked"
    directory.mkdir(parents=True)
    (directory / "file").touch()
    directory.chmod(0o500)
    remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    remove_tree(tmp_path / "tree")


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


def test_cmake_configuration_in_place_is_done_again(tree: Path, tmp_path: Path) -> None:
    for name in ("CMakeLists.txt", "CMakeCache.txt", "CMakeFiles/cache"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).touch()
    with pytest.raises(UserError, match="CMake"):
        SourceTree(tree).check("make")
    SourceTree(tree).check("cmake -B build && cmake --build build")
    SourceTree(tree).copy(tmp_path / "copy")
    assert (tmp_path / "copy/CMakeLists.txt").exists()
    assert not (tmp_path / "copy/CMakeCache.txt").exists() and not (tmp_path / "copy/CMakeFiles").exists()


def test_links_that_leave_the_tree(tree: Path, tmp_path: Path) -> None:
    """A build writes to links of directories that are empty or have its files; others are sources."""
    for name in ("empty", "built", "headers"):
        (tmp_path / "outside" / name).mkdir(parents=True)
    shutil.copyfile("/bin/true", tmp_path / "outside/built/app")
    (tmp_path / "outside/headers/x.h").write_text("")
    for name in ("empty", "built"):
        (tree / name).symlink_to(tmp_path / "outside" / name)
    (tree / "headers").symlink_to("../outside/headers")
    SourceTree(tree).copy(tmp_path / "below" / "copy")
    copy = tmp_path / "below/copy"
    for name in ("empty", "built"):
        assert (copy / name).is_dir() and not (copy / name).is_symlink() and not list((copy / name).iterdir())
    assert (copy / "headers/x.h").is_file()


def test_linked_repository_is_not_changed(tree: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path / "repository"], check=True)
    shutil.rmtree(tmp_path / "repository/.git/objects/info")
    (tree / ".git").symlink_to(tmp_path / "repository/.git")
    SourceTree(tree).copy(tmp_path / "copy")
    assert not os.path.lexists(tmp_path / "copy/.git")
    assert not (tmp_path / "repository/.git/objects/info").exists()


def test_programs_of_an_earlier_build_stay(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/app").write_text("the user's")
    (tmp_path / "outside/notes").write_text("")
    (tree / "linked").symlink_to(tmp_path / "outside")
    (tree / "app").write_text("old")
    SourceTree(tree).copy(tmp_path / "copy", programs=("app", "linked/app"))
    assert not (tmp_path / "copy/app").exists() and (tmp_path / "outside/app").read_text() == "the user's"


def test_unreadable_directory_is_named(tree: Path, tmp_path: Path) -> None:
    (tree / "volume").mkdir(mode=0o000)
    assert "volume" not in SourceTree(tree).build_directories()
    SourceTree(tree, ("volume",)).copy(tmp_path / "copy")
