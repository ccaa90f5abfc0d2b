"""Publication is all or nothing, whatever happens meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from components.console import UserError
from components.storage import publish, read_manifest, require_artifact, verify


def make(output: Path, text: str = "x") -> None:
    with publish(output) as directory:
        (directory / "file").write_text(text)


def test_appears_whole_and_leaves_nothing_else(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "trace"
    with publish(output) as directory:
        (directory / "file").write_text("x")
        assert not output.exists()
        assert directory.parent == output.parent
    verify(output)
    assert os.listdir(output.parent) == ["trace"]


@pytest.mark.parametrize("place", ["/proc/trace", "/proc/deep/trace", "{}/file/trace"])
def test_a_place_where_nothing_can_be_made_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    output = Path(place.format(tmp_path))
    with pytest.raises(UserError) as raised:
        make(output)
    assert raised.value.problem.startswith(f"{output} cannot be made: ") and raised.value.remedy
    assert os.listdir(tmp_path) == ["file"]


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), publish(tmp_path / "trace") as directory:
        (directory / "file").write_text("x")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_an_exception_keeps_the_older_artifact(tmp_path: Path) -> None:
    make(tmp_path / "trace", "old")
    with pytest.raises(ValueError), publish(tmp_path / "trace") as directory:
        (directory / "file").write_text("new")
        raise ValueError
    assert (tmp_path / "trace" / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["trace"]


def test_replaces_an_older_artifact_whole(tmp_path: Path) -> None:
    with publish(tmp_path / "trace") as directory:
        (directory / "old-only").write_text("old")
    make(tmp_path / "trace", "new")
    assert [entry.name for entry in read_manifest(tmp_path / "trace").files] == ["file"]
    assert os.listdir(tmp_path) == ["trace"]


def test_a_reader_finds_a_whole_artifact_at_every_moment(tmp_path: Path) -> None:
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


def test_refuses_to_replace_what_is_not_an_artifact(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("")
    for name in ("home", "file"):
        with pytest.raises(UserError, match=name), publish(tmp_path / name):
            pytest.fail("the block must not run")
    assert (tmp_path / "home" / "thesis.tex").read_text() == "years of work"


def test_two_makers_that_end_at_once_leave_one_whole_artifact(tmp_path: Path) -> None:
    output = tmp_path / "trace"
    wrong: list[BaseException] = []
    barrier = threading.Barrier(4)

    def make_one(text: str) -> None:
        try:
            with publish(output) as directory:
                (directory / "file").write_text(text)
                barrier.wait()
        except BaseException as error:
            wrong.append(error)

    for _round in range(10):
        makers = [threading.Thread(target=make_one, args=(str(number),)) for number in range(4)]
        for maker in makers:
            maker.start()
        for maker in makers:
            maker.join()
        assert wrong == []
        verify(output)
        shutil.rmtree(output)
    assert os.listdir(tmp_path) == []


def test_fills_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    make(tmp_path / "trace")
    require_artifact(tmp_path / "trace", "trace")


def test_a_killed_maker_leaves_no_artifact_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom components.storage import publish\n"
        "with publish(Path(sys.argv[1])) as d:\n"
        "    (d / 'file').write_text('half')\n    print('ready', flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, tmp_path / "trace"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    make(tmp_path / "trace")  # while the other one lives, its directory is not ours to remove
    assert len(os.listdir(tmp_path)) == 2
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    make(tmp_path / "trace")
    assert os.listdir(tmp_path) == ["trace"]
