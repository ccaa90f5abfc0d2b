"""Publication is all or nothing, even if interrupted or concurrent."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage import publish, put_in_place, read_manifest, require_artifact, verify


def make(output: Path, text: str = "x") -> None:
    with publish(output, "trace") as directory:
        (directory / "file").write_text(text)


def test_artifact_appears_atomically_and_leaves_no_other_files(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "trace"
    with publish(output, "trace") as directory:
        (directory / "file").write_text("x")
        assert not output.exists()
        assert directory.parent == output.parent
    verify(output)
    assert os.listdir(output.parent) == ["trace"]


@pytest.mark.parametrize("pattern", ["/proc/trace", "/proc/deep/trace", "{}/file/trace"])
def test_unwritable_output_is_named(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "file").touch()
    output = Path(pattern.format(tmp_path))
    with pytest.raises(UserError) as raised:
        make(output)
    assert raised.value.problem.startswith(f"{output} cannot be created: ") and raised.value.remedy
    assert "/file/" not in str(output) or f"{tmp_path}/file" in raised.value.problem
    assert os.listdir(tmp_path) == ["file"]


def test_exception_leaves_no_files_and_keeps_the_older_artifact(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), publish(tmp_path / "trace", "trace") as directory:
        (directory / "file").write_text("x")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []
    make(tmp_path / "trace", "old")
    with pytest.raises(ValueError), publish(tmp_path / "trace", "trace") as directory:
        (directory / "file").write_text("new")
        raise ValueError
    assert (tmp_path / "trace" / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["trace"]


def test_older_artifact_is_replaced_completely(tmp_path: Path) -> None:
    with publish(tmp_path / "trace", "trace") as directory:
        (directory / "old-only").write_text("old")
    make(tmp_path / "trace", "new")
    assert [entry.name for entry in read_manifest(tmp_path / "trace").files] == ["file"]
    assert os.listdir(tmp_path) == ["trace"]


def test_reader_always_finds_a_complete_artifact(tmp_path: Path) -> None:
    output = tmp_path / "trace"
    make(output, "0")
    seen: list[BaseException | str] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            try:
                seen.append((output / "file").read_text())
            except BaseException as error:
                seen.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 40):
        make(output, str(number))
    stop.set()
    reader.join()
    assert {type(s) for s in seen} == {str} and len(set(seen)) > 1


def test_refuses_to_replace_files_that_are_not_artifacts(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("")
    for name in ("home", "file"):
        with pytest.raises(UserError, match=name), publish(tmp_path / name, "trace"):
            pytest.fail("the block must not run")
    assert (tmp_path / "home" / "thesis.tex").read_text() == "years of work"


def test_concurrent_writers_leave_one_complete_artifact(tmp_path: Path) -> None:
    output = tmp_path / "trace"
    wrong: list[BaseException] = []
    barrier = threading.Barrier(4)

    def make_one(text: str) -> None:
        try:
            with publish(output, "trace") as directory:
                (directory / "file").write_text(text)
                barrier.wait()
        except BaseException as error:
            wrong.append(error)

    for _round in range(10):
        writers = [threading.Thread(target=make_one, args=(str(number),)) for number in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert wrong == []
        verify(output)
        shutil.rmtree(output)
    assert os.listdir(tmp_path) == []


def test_publishes_into_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    make(tmp_path / "trace")
    require_artifact(tmp_path / "trace", "trace")


def test_killed_writer_leaves_no_artifact_and_the_next_cleans_up(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom components.platform.storage import publish\n"
        "with publish(Path(sys.argv[1]), 'trace') as d:\n"
        "    (d / 'file').write_text('half')\n    print('ready', flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, tmp_path / "trace"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    make(tmp_path / "trace")  # must not remove the directory of the other one while that is alive
    assert len(os.listdir(tmp_path)) == 2
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    make(tmp_path / "trace")
    assert os.listdir(tmp_path) == ["trace"]


KILLED = """
import os, signal, sys
from pathlib import Path
from components.platform.storage import publish, put_in_place

def no_exchange(left, right):
    raise OSError(22, "Invalid argument")

calls = 0
def killed(call):
    def wrapper(*arguments, **named):
        global calls
        calls += 1
        if calls == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)
    return wrapper

put_in_place._exchange = no_exchange
with publish(Path(sys.argv[1]), "trace") as directory:
    (directory / "file").write_text("new")
    for name in ("rename", "rmdir", "unlink", "fsync"):
        setattr(os, name, killed(getattr(os, name)))
print(calls)
"""
"""Publishes on a file system that cannot exchange names, and is killed before the system call of this number."""


def test_publisher_killed_at_any_call_leaves_the_old_or_the_new_artifact(tmp_path: Path) -> None:
    found = []
    while True:
        output = tmp_path / f"killed at {len(found) + 1}" / "trace"
        make(output, "old")
        arguments = [sys.executable, "-c", KILLED, str(output), str(len(found) + 1)]
        done = subprocess.run(arguments, capture_output=True, text=True)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        require_artifact(output, "trace", verify_content=True)
        found.append((output / "file").read_text())
        with pytest.raises(KeyboardInterrupt), publish(output, "trace"):
            raise KeyboardInterrupt
        assert (output / "file").read_text() == found[-1] and os.listdir(output.parent) == ["trace"]
    assert found == sorted(found, reverse=True) and set(found) == {"old", "new"} and len(found) == int(done.stdout)


def test_publishers_without_exchange_do_not_lose_the_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_exchange(left: Path, right: Path) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(put_in_place, "_exchange", no_exchange)
    make(tmp_path / "trace")
    threads = [threading.Thread(target=make, args=(tmp_path / "trace", str(number))) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    verify(tmp_path / "trace")
    assert (tmp_path / "trace" / "file").read_text() in "01234567" and os.listdir(tmp_path) == ["trace"]


def test_files_are_on_the_disk_before_the_artifact_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, os.rename

    def record_fsync(descriptor: int) -> None:
        calls.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def record_rename(source: Path, target: Path) -> None:
        calls.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "rename", record_rename)
    with publish(tmp_path / "trace", "trace") as directory:
        (directory / "deep").mkdir()
        (directory / "deep" / "file").write_text("x")
        (directory / "link").symlink_to("deep/file")
        name = directory.name
    assert sorted(calls[:4]) == sorted(["file", name, "deep", "manifest.json"])
    assert calls[4:] == ["rename", tmp_path.name], "nothing is renamed before all is on the disk"
