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
