"""The state of a search on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.core.console import UserError
from components.core.storage.manifest import write_manifest
from components.tune.__main__ import main
from components.tune.state import ModuleState, SearchDirectory

STATE = ModuleState(
    900, "a.cc", 850, 800, {("f", "g", 0): 1}, frozenset({("f", "g", 0), ("f", "h", 2)}), 3, gained_bytes=50.5
)


def test_written_state_is_read_back(tmp_path: Path) -> None:
    SearchDirectory(tmp_path, {"policy": "1"}).save("m", STATE)
    assert SearchDirectory(tmp_path, {"policy": "1"}).load("m") == STATE
    assert SearchDirectory(tmp_path, {"policy": "2"}).load("m") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("found", [["f", "g", 0]]), ("tried", [["f", 1, 2]]), ("heuristic_bytes", "900"), ("finished", 2)],
)
def test_damaged_state_is_refused(key: str, value: Any, tmp_path: Path) -> None:
    search = SearchDirectory(tmp_path, {})
    search.save("m", STATE)
    (path,) = tmp_path.glob("*/modules/*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(UserError, match=f"is not the state of a module in a search .*{key}"):
        search.load("m")


def test_uri_as_root_directory_is_refused(tmp_path: Path) -> None:
    for name in ("corpus", "toolchain"):
        (tmp_path / name).mkdir()
        write_manifest(tmp_path / name)
    inputs = ["--corpus", str(tmp_path / "corpus"), "--toolchain", str(tmp_path / "toolchain")]
    command = [*inputs, "--output", str(tmp_path / "plan"), "--root-dir", "gs://bucket/search"]
    with pytest.raises(UserError, match="--root-dir gs://bucket/search: a search keeps its state on this machine"):
        main.main(command, standalone_mode=False)
    assert not (tmp_path / "plan").exists()
