"""Messages of `mlgo shrink` where the user's own build or check fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from components.core.formats.toolchain import Toolchain
from components.core.projects.source_tree import SourceTree
from components.platform.errors import UserError
from components.shrink.build import UserBuild
from components.shrink.step import shrink

Fail = Callable[..., UserError]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def fail(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Shrink by shell commands that fail, and return the error."""
    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / "cache"))
    release = Toolchain(tmp_path / "clang", "release", "19.1.7", "x86_64-pc-linux-gnu", {"inlining": ()}, {})

    def run(*commands: str, check: str = "", directory: Path = source) -> UserError:
        builds = [UserBuild(SourceTree(directory), ("sh", "-c", command), check) for command in commands]
        with pytest.raises(UserError) as raised:
            shrink(builds, release, [], False, 0, 1, tmp_path / "out", tmp_path / "unpublished")
        return raised.value

    return run


def log_of(error: UserError) -> str:
    """Return the text of the log that an error names."""
    (path,) = re.findall(r"/\S+\.log", error.remedy)
    return Path(path).read_text()


def test_error_names_the_log_of_its_own_attempt(fail: Fail, tmp_path: Path) -> None:
    error = fail("echo one; exit 3", "echo two; exit 4", "echo three; exit 5")
    assert "ends with status 3" in error.problem and "one\n" in log_of(error) and "two" not in log_of(error)
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
    (source / "app.c").write_text('#include <stdio.h>\nint main(void) { puts("the app"); return 0; }\n')
    error = fail("gcc app.c -o app; echo error: of the build", check=check)
    assert "of the build" not in error.problem and "of the build\n" in log_of(error)
    first = error.problem.partition(":\n")[0]
    assert first == f"the check, {check}, ends with status 1" + (f" (last command: {last})" if last else "")
    assert not last or f"$ {last}\n" in log_of(error)


@pytest.mark.parametrize("check", ['test "$( (./app) 2>&1)" = "the app"', "{ ./app; } 2>all; test $(wc -l <all) = 0"])
def test_check_that_reads_the_standard_error_is_as_it_was(fail: Fail, source: Path, check: str) -> None:
    """The last command fails, as nothing else does."""
    (source / "app.c").write_text('#include <stdio.h>\nint main(void) { puts("the app"); return 0; }\n')
    assert "ends with status 7:" in fail("gcc app.c -o app", check=f"{check}; exit 7").problem
