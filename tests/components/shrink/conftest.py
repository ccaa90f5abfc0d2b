"""Projects that are shrunk."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The directory of a project, with the files of the test module's SOURCES: texts by their names."""
    directory = tmp_path / "project"
    directory.mkdir()
    for name, text in request.module.SOURCES.items():
        (directory / name).write_text(text)
    return directory
