"""Tests files of scores in the format of FunctionScores.cpp. toolchain/test_regalloc.py tests real ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from components.core.compiler.logs.function_scores import read_flip_scores, read_function_scores
from components.core.compiler.logs.training_log import LogError

CONTENT = b'{"version":1,"functions":2}\n' + np.array([1.5, 0.25], "<f4").tobytes() + b"main\0_Z3f\xc3\xb6ov\0"


def test_scores_are_read_by_function(tmp_path: Path) -> None:
    (tmp_path / "scores").write_bytes(CONTENT)
    assert read_function_scores(tmp_path / "scores") == {"main": 1.5, "_Z3föov": 0.25}
    (tmp_path / "scores").write_bytes(b'{"version":1,"functions":0}\n')
    assert read_function_scores(tmp_path / "scores") == {}
    with pytest.raises(LogError, match="wrote no"):
        read_function_scores(tmp_path / "absent")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not a file of scores"),
        (b"[]\n", "not a file of scores"),
        (CONTENT.replace(b'"version":1', b'"version":2'), "not a file of scores"),
        (CONTENT.replace(b'"functions":2', b'"functions":-1'), "not a file of scores"),
        (CONTENT.replace(b'"functions":2', b'"functions":1'), "does not end after its 1 functions"),
        (CONTENT.replace(b'"functions":2', b'"functions":99999999'), "too short for its 99999999 functions"),
        (CONTENT[:-1], "does not end after its 2 functions"),
        (CONTENT[:30], "too short for its 2 functions"),
        (CONTENT + b"x", "does not end after its 2 functions"),
        (CONTENT.replace("_Z3föov".encode(), b"main"), "twice"),
    ],
)
def test_damaged_file_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "scores").write_bytes(content)
    with pytest.raises(LogError, match=problem):
        read_function_scores(tmp_path / "scores")


def test_flip_scores_are_read(tmp_path: Path) -> None:
    path = tmp_path / "scores"
    content = b'{"version":1,"decisions":2}\n' + np.array([1.5, np.nan], "<f4").tobytes()
    path.write_bytes(content)
    np.testing.assert_array_equal(read_flip_scores(path, 2), np.array([1.5, np.nan], np.float32))
    for wrong, flips in ((content, 3), (content[:-1], 2), (content + b"x", 2)):
        path.write_bytes(wrong)
        with pytest.raises(LogError, match=r"does not end after|too short for"):
            read_flip_scores(path, flips)
