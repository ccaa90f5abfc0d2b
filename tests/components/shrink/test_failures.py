"""Messages of `mlgo shrink` where the user's own build or check fails."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from components.core.formats.toolchain import Toolchain
from components.core.projects.flags.builds import describe_failure
from components.core.projects.source_tree import SourceTree
from components.platform.errors import UserError
from components.platform.storage.shared_state.stale_directories import lock_shared
from components.shrink.builds.build import UserBuild
from components.shrink.checks import Checks
from components.shrink.step import _make_work, shrink
from components.shrink.trials import ShrinkConfig

SOURCES: dict[str, str] = {}
APP = '#include <stdio.h>\nint main(void) { puts("the app"); return 0; }\n'
Fail = Callable[..., UserError]


@pytest.fixture
def fail(source: Path, release: Toolchain, tmp_path: Path) -> Fail:
    """Shrink by shell commands that fail, and return the error."""

    def run(*commands: str, check: str = "", directory: Path = source, output: str = "out") -> UserError:
        builds = [UserBuild(SourceTree(directory), ("sh", "-c", command)) for command in commands]
        with pytest.raises(UserError) as raised:
            shrink(builds, release, ShrinkConfig([], Checks(check)), tmp_path / output, tmp_path / "unpublished")
        assert not (tmp_path / output).exists()
        return raised.value

    return run


def log_of(error: UserError) -> str:
    """Return the text of the log that an error names."""
    (path,) = re.findall(r"/\S+\.log", error.remedy)
    return Path(path).read_text()


def test_error_names_the_log_of_its_own_attempt(fail: Fail, tmp_path: Path) -> None:
    error = fail("echo one; exit 3", "echo two; exit 4", "echo three; exit 5")
    assert "status 3" in error.problem and "one\n" in log_of(error) and "two" not in log_of(error)
    logs = sorted((tmp_path / "cache/logs/shrink").iterdir())
    assert [path.name.rpartition("own")[2] for path in logs] == ["-2.log", "-3.log", ".log"]
    assert "two\n" in logs[0].read_text() and "three\n" in logs[1].read_text()


@pytest.mark.parametrize(
    ("check", "last"),
    [
        ("./app && test -e missing && true", "test -e missing"),
        ("./app 2>/dev/null\ntest -e missing\ntrue", "test -e missing"),
        ("false", ""),
        ('test "$( (./app) 2>&1)" = other', ""),  # what the shell says would be part of the text
    ],
)
def test_failing_check_names_its_last_command(fail: Fail, source: Path, check: str, last: str) -> None:
    (source / "app.c").write_text(APP)
    error = fail("gcc app.c -o app; echo error: of the build", check=check)
    assert "of the build" not in error.problem and "of the build\n" in log_of(error)
    first = error.problem.partition(":\n")[0]
    assert check in first and first.endswith(f"(last command: {last})" if last else "status 1")
    assert not last or f"$ {last}\n" in log_of(error)


@pytest.mark.parametrize("check", ['test "$( (./app) 2>&1)" = "the app"', "{ ./app; } 2>all; test $(wc -l <all) = 0"])
def test_check_that_reads_the_standard_error_is_as_it_was(fail: Fail, source: Path, check: str) -> None:
    """The last command fails, as nothing else does."""
    (source / "app.c").write_text(APP)
    assert "status 7" in fail("gcc app.c -o app", check=f"{check}; exit 7").problem


CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(app C)
get_filename_component(above "${CMAKE_SOURCE_DIR}/.." ABSOLUTE)
add_executable(app SOURCES)
"""


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("Makefile", "app: ../main.c\n\tgcc $< -o $@\n", "make"),
        ("Makefile", "app:\n\tcd sub && gcc ../../main.c -o $@\n", "mkdir sub; make"),
        ("CMakeLists.txt", CMAKE.replace("SOURCES", "../main.c"), "cmake ."),
        ("CMakeLists.txt", CMAKE.replace("SOURCES", "${above}/main.c"), "cmake ."),
        ("used.c", '#include "../main.c"\n', "gcc -c used.c"),
    ],
)
def test_build_of_a_file_above_the_tree_is_to_run_there(
    fail: Fail, source: Path, name: str, text: str, command: str
) -> None:
    directory = source / "build"
    directory.mkdir()
    (source / "main.c").write_text("int main(void) { return 0; }\n")
    (directory / name).write_text(text)
    error = fail(command, directory=directory)
    assert f"{source / 'main.c'}: run it in {source}: " in error.remedy and "'cd build && ...'" in error.remedy


@pytest.mark.parametrize(
    "command",
    [
        "mkae",
        "/bin/sh -c mkae",
        "make alll",
        "gcc -c wrong.c",
        "mkdir -p sub/deep; cd sub/deep; ls ../../wrong.c; ls ../missing.c",
        "cmake -S . -B build",
        "gcc wrong.c -lmissing",
    ],
)
def test_other_failures_do_not_speak_of_the_directory_above(fail: Fail, source: Path, command: str) -> None:
    (source / "Makefile").write_text("app: ../Makefile\n\tgcc wrong.c ../other.c\n")
    (source / "wrong.c").write_text("int main(void) { return 0 }\n")
    (source / "CMakeLists.txt").write_text("project(app C)\ninclude_directories(..)\nmessage(FATAL_ERROR no)\n")
    assert "run it in" not in fail(command).remedy


def test_failing_build_of_a_debian_package_names_the_command_for_its_packages(
    fail: Fail, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "debian").mkdir()
    (source / "debian/control").write_text("Source: app\n")
    assert f"build-dep {source}" in fail("false").remedy
    monkeypatch.chdir(source)
    assert "build-dep ." in fail("false").remedy


def test_build_without_a_program_is_refused(fail: Fail) -> None:
    assert "true makes no program and no library" in fail("true").problem
    assert "ends with status 127" in fail("no-such-program").problem


def test_directory_that_path_cannot_hold_is_refused(fail: Fail) -> None:
    assert "a:b" in fail("true", output="a:b").problem


def test_relative_tmpdir_is_named(fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "here")
    error = fail("true")
    assert error.problem.startswith("TMPDIR=here is relative") and "absolute path" in error.remedy


def test_tmpdir_that_path_cannot_hold_is_named(fail: Fail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a:b").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a:b"))
    error = fail("true")
    assert "colon" in error.problem and "TMPDIR" in error.remedy


def test_work_directory_is_named_as_programs_of_a_build_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "link"))
    work, lock = _make_work()
    os.close(lock)
    assert work.parent == tmp_path / "real"


def test_full_disk_is_the_reason(fail: Fail) -> None:
    assert "No space" in describe_failure(fail("cat /etc/passwd >/dev/full; cc -c x.c"))


def test_copies_of_a_run_that_was_killed_are_removed(
    fail: Fail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stale, young, used = (tmp_path / f"mlgo-shrink-{name}" for name in ("stale", "young", "used"))
    for directory in (stale, young, used):
        (directory / "build").mkdir(parents=True)
    for directory in (stale, used):
        os.utime(directory, (1, 1))
    lock = lock_shared(used)
    assert lock is not None
    fail("exit 3")
    os.close(lock)
    assert [path.name for path in sorted(tmp_path.glob("mlgo-shrink-*"))] == [used.name, young.name]


def test_failing_test_is_the_reason(fail: Fail, source: Path) -> None:
    (source / "app.c").write_text("int main() { return 0; }")
    said = "printf 'PASS: one\\nFAIL: two\\n# ERROR: 0\\n'; exit 1"
    assert describe_failure(fail("gcc app.c -o app", check=said)) == "FAIL: two"
