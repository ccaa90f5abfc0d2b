"""`corpus obtain`: the corpus step of the pipeline."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import run_command


def obtain(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_command("components.corpus", "obtain", *arguments)


@pytest.mark.parametrize(
    ("count", "problem", "remedy"),
    [
        (2, "2 modules are too few to train on", "train on at least 3 modules"),
        (3, "none of the 3 modules is left to select the best policy with: validation is empty", "add code"),
    ],
)
def test_corpus_too_small_to_be_split_is_refused_before_anything_is_trained(
    make_corpus, tmp_path: Path, count: int, problem: str, remedy: str
) -> None:
    """Three modules of the same content cannot be split either."""
    code = "static int f(int x) { return x; } int g(void) { return f(1); }"
    corpus = make_corpus(tmp_path / "corpus", {f"{number}.c": code for number in range(count)})
    for module in corpus.modules[1:]:
        shutil.copyfile(corpus.modules[0].bitcode, module.bitcode)
    done = obtain("--existing", corpus.directory, "--output", tmp_path / "out")
    assert done.returncode == 1 and problem in done.stderr and f"remedy: {remedy}" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_exactly_one_source_is_needed(tmp_path: Path) -> None:
    done = obtain("--output", tmp_path / "out")
    assert done.returncode == 1 and "got none" in done.stderr
