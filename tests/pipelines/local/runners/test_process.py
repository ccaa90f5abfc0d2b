"""Tests of running steps as processes of this environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[4]


def test_environment_without_tensorflow_is_refused_before_the_first_step(tmp_path: Path) -> None:
    command: list[str | Path] = [
        ROOT / ".venv-pipelines/bin/python",
        "-m",
        "pipelines",
        "run",
        "--recipe",
        "tiny",
        "--output",
    ]
    done = subprocess.run([*command, tmp_path / "run"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "TensorFlow, which trains policies, is not installed" in done.stderr
    assert not (tmp_path / "run").exists()
