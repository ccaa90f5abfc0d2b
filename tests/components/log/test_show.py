"""Training logs as text, CSV and Parquet."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from components.core.compiler.advisor import Advisor
from components.core.compiler.logs.records import open_log
from components.core.compiler.logs.training_log import LogError, read_log
from components.core.formats.corpus import Corpus
from components.core.formats.toolchain import load_toolchain
from components.log.__main__ import main
from components.platform.errors import UserError

LEVELS = {"inlining": "-Oz", "regalloc": "-O2"}


def show(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["show", *map(str, arguments)], catch_exceptions=False)


def tensor(name: str, kind: str = "int64_t", shape: tuple[int, ...] = (1,)) -> dict[str, object]:
    return {"name": name, "type": kind, "port": 0, "shape": list(shape)}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log as LLVM writes it: three decisions of two contexts, the first of which is entered twice, with outcomes."""
    header = {"features": [tensor("users"), tensor("mask", shape=(1, 2))], "score": tensor("reward", "float")}
    parts = [json.dumps(header).encode(), b"\n"]
    for context, number, users, score in (("f", 0, 3, 0.5), ("g", 0, -1, 2.0), ("f", 1, 10, -4.0)):
        parts += [json.dumps({"context": context}).encode(), b"\n", json.dumps({"observation": number}).encode(), b"\n"]
        parts += [np.array([users, 1, 0], np.int64).tobytes(), b"\n"]
        parts += [json.dumps({"outcome": number}).encode(), b"\n", np.array([score], np.float32).tobytes(), b"\n"]
    path = tmp_path / "log"
    path.write_bytes(b"".join(parts))
    return path


def test_decisions_are_blocks_of_text(log: Path) -> None:
    assert show(log).output == (
        "context: f\nobservation: 0\n  users  3\n  mask   1 0\noutcome: 0.5\n"
        "context: g\nobservation: 0\n  users  -1\n  mask   1 0\noutcome: 2.0\n"
        "context: f\nobservation: 1\n  users  10\n  mask   1 0\noutcome: -4.0\n"
    )
    assert show(log, "--context", "g", "--features", "users").output.splitlines()[2:] == ["  users  -1", "outcome: 2.0"]
    assert show(log, "--limit", 1).output.count("observation") == 1


def test_decisions_are_rows(log: Path, tmp_path: Path) -> None:
    expected = "context,observation,users,mask.0,mask.1,outcome\nf,0,3,1,0,0.5\ng,0,-1,1,0,2.0\nf,1,10,1,0,-4.0\n"
    assert show(log, "--format", "csv").output == expected
    done = show(log, "--format", "csv", "--output", tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == expected and "a.csv: 3 decisions" in done.output
    show(log, "--format", "parquet", "--output", tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet").to_pydict()
    assert table["users"] == [3, -1, 10] and table["mask"] == [[1, 0]] * 3 and table["outcome"] == [0.5, 2.0, -4.0]


@pytest.mark.toolchain
@pytest.mark.parametrize("problem", LEVELS)
def test_values_are_those_that_training_reads(
    problem: str, training_toolchain: Path, tiny_corpus: Corpus, pressed_corpus: Corpus, tmp_path: Path
) -> None:
    corpus, name = (tiny_corpus, "strings") if problem == "inlining" else (pressed_corpus, "pressed")
    (module,) = (module for module in corpus if name in module.name)
    log = tmp_path / "log"
    flags = Advisor("log").flags(problem, log, None)
    command: list[str | Path] = [
        load_toolchain(training_toolchain).clang,
        *module.arguments(),
        "-x",
        "ir",
        module.bitcode,
    ]
    subprocess.run([*command, "-o", tmp_path / "a.o", *flags], check=True)
    read = read_log(log)
    show(log, "--format", "parquet", "--output", tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.num_rows == read.decisions > 2
    for context in read.contexts:
        rows = table.filter([name == context.name for name in table["context"].to_pylist()])
        for feature, values in context.columns.items():
            shown = np.array(rows[feature].to_pylist(), values.dtype).reshape(values.shape)
            np.testing.assert_array_equal(shown, values)
        if context.outcomes is not None:
            np.testing.assert_array_equal(np.array(rows["outcome"].to_pylist()), context.outcomes.ravel())
    rows = list(csv.DictReader(show(log, "--format", "csv", "--limit", 2).output.splitlines()))
    assert len(rows) == 2 and len(rows[0]) > len(read.features)


def test_truncated_log_is_an_error_or_its_beginning(log: Path, tmp_path: Path) -> None:
    content = log.read_bytes()
    with open_log(log) as reader:
        whole = [(record.context, record.number) for record in reader.records()]
    lengths = set()
    for size in range(len(content)):
        (tmp_path / "part").write_bytes(content[:size])
        try:
            with open_log(tmp_path / "part") as reader:
                part = [(record.context, record.number) for record in reader.records()]
        except LogError as error:
            assert str(tmp_path / "part") in error.problem
            continue
        assert part == whole[: len(part)]
        lengths.add(len(part))
    assert lengths >= {0, 1, 2}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--features", "nothing"), "the log has no feature nothing"),
        (("--context", "h"), "the log has no decision of the context 'h'"),
        (("--format", "parquet"), "--format parquet without --output"),
        (("--output", "."), "is a directory"),
        (("--format", "csv", "--context", "h", "--output", "{}/new.csv"), "no decision of the context"),
    ],
)
def test_what_the_log_does_not_have_is_refused(log: Path, tmp_path: Path, options: tuple[str, ...], named: str) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError) as error:
        show(log, *(option.format(tmp_path) for option in options))
    assert named in error.value.problem and error.value.remedy
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\n", b"int x;\n", b"[1]\n", b'{"features": 3}\n', b'{"features": [{}]}\n'),
        pytest.param(b"[" * 100_000 + b"\n", id="nested"),
    ],
)
def test_other_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(LogError):
        show(tmp_path / "log")


def test_directory_and_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a directory"):
        show(tmp_path)
    with pytest.raises(UserError, match="No such"):
        show(tmp_path / "none")


def test_closed_pipe_ends_quietly(log: Path) -> None:
    content = log.read_bytes()
    header, rest = content.split(b"\n", 1)
    log.write_bytes(header + b"\n" + rest * 3000)
    command = f"{sys.executable} -m components.log show {log} --format csv | head -n 2"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2 and done.stderr == ""


def test_link_stays_and_its_target_is_written(log: Path, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("before")
    (tmp_path / "link").symlink_to("target")
    assert show(log, "--output", tmp_path / "link").exit_code == 0
    assert (tmp_path / "link").is_symlink() and "observation: 0" in (tmp_path / "target").read_text()
