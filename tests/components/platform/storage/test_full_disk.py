"""A full disk is named, and leaves what was there before and nothing else."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from components.platform.command import _status_of
from components.platform.storage import publish
from components.platform.storage.output_files import replace_text, require_room
from components.platform.storage.shared_state.versioned_json import read_versioned, write_versioned
from pipelines.images import Image, write_images

SIZE_KB = 64


def mount_full_disk(directory: Path) -> Iterator[Path]:
    directory.mkdir()
    size = f"size={SIZE_KB}k"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", directory], capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from mount_full_disk(tmp_path / "disk")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A full directory for temporary files."""
    for directory in mount_full_disk(tmp_path / "temporary"):
        monkeypatch.setenv("TMPDIR", str(directory))
        monkeypatch.setattr(tempfile, "tempdir", str(directory))
        fill(directory / "fill")
        yield directory


def fill(path: Path) -> None:
    with pytest.raises(OSError), open(path, "wb") as stream:
        while True:
            stream.write(bytes(1024))
            stream.flush()


def large(directory: Path) -> None:
    (directory / "file").write_bytes(bytes(SIZE_KB * 2048))


def copy_into(directory: Path) -> None:
    source = Path(tempfile.gettempdir(), f"mlgo-test-{os.getpid()}")
    source.write_bytes(bytes(SIZE_KB * 2048))
    try:
        shutil.copyfile(source, directory / "file")
    finally:
        source.unlink()


def many(directory: Path) -> None:
    for number in range(10 * SIZE_KB):
        (directory / str(number)).write_bytes(b"x" * 200)


@pytest.mark.parametrize("write", [large, copy_into, many])
def test_output_on_a_full_disk_is_named_and_nothing_is_left(disk: Path, write: Callable[[Path], None]) -> None:
    with pytest.raises(OSError) as raised, publish(disk / "deep" / "trace", "trace") as directory:
        write(directory)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(disk / "deep" / "trace"))
    assert os.listdir(disk) == []


def test_former_artifact_stays_if_the_disk_is_full(disk: Path) -> None:
    with publish(disk / "trace", "trace") as directory:
        (directory / "file").write_text("old")
    with pytest.raises(OSError), publish(disk / "trace", "trace") as directory:
        large(directory)
    assert (disk / "trace" / "file").read_text() == "old" and os.listdir(disk) == ["trace"]


def test_full_directory_for_temporary_files_is_named(temporary: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError) as raised, publish(tmp_path / "trace", "trace"):
        large(Path(tempfile.mkdtemp(dir=tempfile.gettempdir())))
    assert raised.value.filename == str(temporary)
    with pytest.raises(OSError) as raised:
        require_room("error: IO failure on output stream: No space left on device", tmp_path / "policy.so")
    assert raised.value.filename == str(temporary)


@pytest.mark.parametrize("what", ["state", "text", "images"])
def test_document_on_a_full_disk_stays_as_it_was(disk: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = disk / "st.json"
    text = "x" * SIZE_KB * 2048

    def write() -> None:
        if what == "state":
            write_versioned(str(path), {"text": text}, read_versioned(str(path)))
        elif what == "text":
            replace_text(path, text)
        else:
            write_images(path, {"training": Image(text, text, 0, False)})

    path.write_text("{}")
    before = path.read_bytes()
    assert _status_of(write) == 1
    assert str(path) in capsys.readouterr().err
    assert path.read_bytes() == before and set(os.listdir(disk)) <= {"st.json", ".st.json.lock"}
