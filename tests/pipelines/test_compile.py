"""The compiled pipeline in the repository is what pipelines/training.py compiles to, in kfp's own environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.spec import COMPILED

ROOT = Path(__file__).parents[2]
ENVIRONMENT = Path(sys.prefix).with_name(f"{Path(sys.prefix).name}-pipelines")


@pytest.mark.slow
def test_the_golden_is_what_compiling_gives(tmp_path: Path) -> None:
    assert (ENVIRONMENT / "bin" / "python").is_file(), "make setup-pipelines"
    command = [sys.executable, "-m", "pipelines", "pipeline", "compile", "--output", str(tmp_path / "p.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "p.yaml").read_text()
    assert made == COMPILED.read_text(), "make pipeline, and commit what it writes"


def test_without_kfp_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "pipelines", "pipeline", "compile", "--output", str(tmp_path / "p.yaml")]
    environment = {"MLGO_PIPELINES_PYTHON": str(tmp_path / "nowhere"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300)
    assert done.returncode == 1 and "make setup-pipelines" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "p.yaml").exists()
