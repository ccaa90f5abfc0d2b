"""Tests that commands end well in any environment: with their whole output, or with one message and nothing changed.

Each example runs a command that works, with variables that name no directory, no program and no locale, and with few
files that it may open or short files that it may write. MLGO_FUZZ_EXAMPLES sets the number of examples as in
test_fuzzing.py. Closed streams, a deleted working directory and little memory need a process: test_environments.py.
"""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.platform.storage import read_manifest, verify
from tests.repository.test_fuzzing_artifacts import FEW, WRITERS, content, put_inputs, status_of, writer_arguments

DIRECTORY_VARIABLES = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "MLGO_CACHE_DIR", "PATH", "PWD", "OLDPWD")
OTHER_VARIABLES = (
    "LANG",
    "LC_ALL",
    "LANGUAGE",
    "TERM",
    "COLUMNS",
    "LINES",
    "TZ",
    "NO_COLOR",
    "SHELL",
    "USER",
    "CC",
    "CXX",
)
DIRECTORIES = (
    "",
    "relative",
    "/nonexistent/deep",
    "/dev/null",
    "/dev/null/deep",
    "/proc",
    "{}/file",
    "{}/loop",
    "{}/not\udcffutf8",
    "{}/" + "a" * 300,
    "{}/" + "deep/" * 1000,
    "gs://bucket/x",
    "~",
    "a:b",
)
TEXTS = ("", "x", "C", "xx_YY.nonsense", "-1", "0", "999999999999", "\udcff", "é", "a\nb", "\x1b[31m")


@contextlib.contextmanager
def variables(values: Mapping[str, str | None], directory: Path) -> Iterator[None]:
    """Set environment variables, None for one that is unset, and make `directory` the working directory."""
    before = os.getcwd()
    with mock.patch.dict(os.environ):
        for name, value in values.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value.replace("{}", str(directory))
        tempfile.tempdir = None  # chosen again, as in a new process
        os.chdir(directory)
        try:
            yield
        finally:
            os.chdir(before)
            tempfile.tempdir = None


@contextlib.contextmanager
def limited(what: str, amount: int) -> Iterator[None]:
    """Let this process open only so many more "files", or write only so many "bytes" to a file."""
    kind = {"files": resource.RLIMIT_NOFILE, "bytes": resource.RLIMIT_FSIZE}[what]
    before = resource.getrlimit(kind)
    fillers: list[int] = []
    if what == "files":  # the limit is of the number of a descriptor, so none below it may be free
        last = max(map(int, os.listdir("/proc/self/fd")))
        while not fillers or fillers[-1] < last:
            fillers.append(os.open(os.devnull, os.O_RDONLY))
        amount += fillers[-1] + 1
    resource.setrlimit(kind, (amount, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)
        for descriptor in fillers:
            os.close(descriptor)


def check(writer: str, work: Path, inputs: dict[str, bytes | str], status: int, message: str) -> None:
    """Check that the output is whole, or that nothing has changed."""
    after = content(work)
    if status:
        assert status == 1 and message.count("error: ") == 1 and "remedy: " in message
        assert after == inputs
        return
    verify(work / "out")
    assert read_manifest(work / "out").kind == WRITERS[writer][2]
    made = {name: value for name, value in after.items() if not name.startswith("out/")}
    assert {name: value for name, value in made.items() if name in inputs} == inputs
    assert not [name for name in made if ".partial" in name]


@settings(max_examples=FEW, suppress_health_check=list(HealthCheck), deadline=None, print_blob=True)
@given(
    writer=st.sampled_from(sorted(WRITERS)),
    directories=st.dictionaries(
        st.sampled_from(DIRECTORY_VARIABLES), st.none() | st.sampled_from(DIRECTORIES), max_size=4
    ),
    others=st.dictionaries(st.sampled_from(OTHER_VARIABLES), st.none() | st.sampled_from(TEXTS), max_size=3),
)
def test_any_variables(writer: str, directories: dict[str, str | None], others: dict[str, str | None]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        put_inputs(work)
        (work / "file").write_text("a file")
        (work / "loop").symlink_to("loop")
        before = content(work)
        with variables({**directories, **others}, work):
            status, message = status_of(WRITERS[writer][0], [*writer_arguments(writer, work), "--output", work / "out"])
        check(writer, work, before, status, message)


@settings(max_examples=FEW, suppress_health_check=list(HealthCheck), deadline=None, print_blob=True)
@given(
    writer=st.sampled_from(sorted(WRITERS)),
    limit=st.tuples(st.just("files"), st.integers(0, 20))
    | st.tuples(st.just("bytes"), st.sampled_from([0, 1, 30, 100, 1000, 4000, 100_000])),
)
def test_any_limit_of_files_and_their_sizes(writer: str, limit: tuple[str, int]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        put_inputs(work)
        before = content(work)
        arguments: list[str | Path] = [*writer_arguments(writer, work), "--output", work / "out"]
        with limited(*limit):
            status, message = status_of(WRITERS[writer][0], arguments)
        check(writer, work, before, status, message)


@pytest.mark.parametrize("writer", sorted(WRITERS))
@pytest.mark.parametrize(("what", "named"), [("files", "ulimit -n"), ("bytes", "ulimit -f")])
def test_limits_reach_the_commands(writer: str, what: str, named: str, tmp_path: Path) -> None:
    """Otherwise the examples above might all succeed."""
    put_inputs(tmp_path)
    before = content(tmp_path)
    arguments: list[str | Path] = [*writer_arguments(writer, tmp_path), "--output", tmp_path / "out"]
    with limited(what, 0):
        status, message = status_of(WRITERS[writer][0], arguments)
    assert status == 1 and named in message, message
    check(writer, tmp_path, before, status, message)


@pytest.mark.parametrize("writer", sorted(WRITERS))
def test_commands_work_without_a_home(writer: str, tmp_path: Path) -> None:
    """As in a container that runs as a user whom it does not know."""
    put_inputs(tmp_path)
    before = content(tmp_path)
    with variables({"HOME": "/nonexistent", "USER": None, "LANG": None}, tmp_path):
        status, message = status_of(
            WRITERS[writer][0], [*writer_arguments(writer, tmp_path), "--output", tmp_path / "out"]
        )
    assert status == 0, message
    check(writer, tmp_path, before, status, message)
