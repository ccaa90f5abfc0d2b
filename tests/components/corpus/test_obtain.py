"""`corpus obtain`: the corpus step of the pipeline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def obtain(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "components.corpus", "obtain", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_corpus_too_small_to_be_split_is_refused_before_anything_is_trained(make_corpus, tmp_path: Path) -> None:
    corpus = make_corpus(
        tmp_path / "corpus", {"one.c": "static int f(int x) { return x; } int g(void) { return f(1); }"}
    )
    done = obtain("--existing", corpus.directory, "--output", tmp_path / "out")
    assert done.returncode == 1
    assert "none of the 1 modules is left to" in done.stderr and "is empty in the corpus's split" in done.stderr
    assert "Traceback" not in done.stderr


def test_exactly_one_source_is_needed(tmp_path: Path) -> None:
    done = obtain("--output", tmp_path / "out")
    assert done.returncode == 1 and "exactly one source of code is required, got none" in done.stderr
