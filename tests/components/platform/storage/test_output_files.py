"""Atomic replacement of single files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.output_files import replace_text, require_writable


def test_file_is_created_and_replaced(tmp_path: Path) -> None:
    for text in ("one\n", "zwei ä\n"):
        replace_text(tmp_path / "f.json", text)
        assert (tmp_path / "f.json").read_text(encoding="utf-8") == text
    assert os.listdir(tmp_path) == ["f.json"]


def test_old_file_stays_if_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_text(tmp_path / "f.json", "old")

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        replace_text(tmp_path / "f.json", "new")
    assert (tmp_path / "f.json").read_text() == "old" and os.listdir(tmp_path) == ["f.json"]


def test_existing_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.json").mkdir()
    with pytest.raises(UserError, match="a directory"):
        replace_text(tmp_path / "f.json", "new")
    assert os.listdir(tmp_path) == ["f.json"]


def test_links_and_devices_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_text("old")
    replace_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"
    replace_text(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()


def test_file_in_shared_memory_is_replaced_atomically() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        path = Path(directory, "f.json")
        replace_text(path, "old")
        with open(path, encoding="utf-8") as reader:
            replace_text(path, "new")
            assert reader.read() == "old" and path.read_text() == "new"


def test_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "f.csv", tmp_path / "file" / "f.csv"):
        with pytest.raises(UserError, match="--csv"):
            require_writable(path, "--csv")
    require_writable(tmp_path / "f.csv", "--csv")


@pytest.mark.parametrize("name", ["policy.json", "new.csv", "manifest.json"])
def test_file_in_an_artifact_is_refused(tmp_path: Path, name: str) -> None:
    with publish(tmp_path / "policy", "policy") as directory:
        (directory / "policy.json").write_text("{}")
    (tmp_path / "link").symlink_to("policy")
    for folder in ("policy", "link"):
        with pytest.raises(UserError, match="a policy") as raised:
            require_writable(tmp_path / folder / name, "--csv")
        assert "--csv" in raised.value.remedy
