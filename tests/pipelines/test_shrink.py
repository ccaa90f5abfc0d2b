"""The pipeline `shrink`, run on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.components.shrink.test_shrink import SOURCES
from tests.support.commands import run_command

pytestmark = pytest.mark.toolchain


def test_pipeline_delivers_the_smallest_build(pretrained_release: Path, tmp_path: Path) -> None:
    source = tmp_path / "project"
    source.mkdir()
    for name, text in SOURCES.items():
        (source / name).write_text(text)
    parameters = {
        "source": source,
        "command": "make -j2 app",
        "check": "./app",
        "release_toolchain": pretrained_release,
    }
    options = [word for name, value in parameters.items() for word in ("--param", f"{name}={value}")]
    done = run_command(
        "pipelines", "pipeline", "run", "--pipeline", "shrink", *options, "--output", tmp_path / "run", timeout=900
    )
    assert done.returncode == 0, done.stderr
    result = tmp_path / "run/shrunk"
    shrunk = json.loads((result / "shrink.json").read_text())
    assert shrunk["command"] == "make -j2 app" and shrunk["chosen"] != "own" and shrunk["reduction_percent"] > 0
    assert (result / "files/app").is_file() and (result / "compilers/g++").is_file()
