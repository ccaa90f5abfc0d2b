"""The lease of a root directory: between processes, between machines, and after its owner was killed."""

import copy
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.directory import remove_if_unused
from components.platform.storage.shared_state import root_lease as module
from components.platform.storage.shared_state.process_identity import ProcessIdentity
from components.platform.storage.shared_state.root_lease import LATEST, LeaseLost, RootLease
from components.platform.storage.shared_state.versioned_json import read_versioned, write_versioned
from components.platform.storage.uri import mirror, parse_location, uri_of
from tests.support.waiting import wait_until

CODE = """
import sys
from pathlib import Path
from components.platform.storage.shared_state.root_lease import RootLease
from components.platform.storage.uri import mirror, parse_location
root = mirror(parse_location(sys.argv[1])) if "://" in sys.argv[1] else Path(sys.argv[1])
root.mkdir(parents=True, exist_ok=True)
with RootLease(root, "training") as fence:
    fence.update(checkpoints=["one"])
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(params=["path", "gs", "s3"])
def where(request, tmp_path):
    return str(tmp_path / "root") if request.param == "path" else str(request.getfixturevalue(f"{request.param}_uri"))


@pytest.fixture
def start(where, tmp_path):
    """Starts a process that holds `where`, and has mirrors of its own if `machine` says so."""
    started = []

    def start(machine="this"):
        environment = os.environ | {"MLGO_CACHE_DIR": str(tmp_path / f"cache of {machine}")}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen([sys.executable, "-c", CODE, where], env=environment, text=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def document(where):
    return read_versioned(f"{where}/{LATEST}").content


def test_second_training_on_one_machine_is_refused(start, where):
    first = start()
    assert first.stdout.readline() == "held\n"
    errors = start().communicate(timeout=60)[1]
    assert f"process {first.pid}" in errors
    errors = start("another").communicate(timeout=60)[1]
    assert f"process {first.pid}" in errors
    first.communicate("end\n", timeout=60)
    assert first.returncode == 0 and document(where)["released"]


def test_killed_training_is_replaced_at_once(start, where):
    first = start()
    assert first.stdout.readline() == "held\n"
    first.send_signal(signal.SIGKILL)  # a zombie, as nobody waits for it
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    assert not document(where)["released"]
    began = time.monotonic()
    second = start()
    assert second.stdout.readline() == "held\n"
    assert time.monotonic() - began < 20
    assert document(where)["pid"] == second.pid


@pytest.fixture
def root(where, tmp_path):
    directory = mirror(parse_location(where)) if "://" in where else tmp_path / "root"  # type: ignore[arg-type]
    directory.mkdir(parents=True)
    return directory


FAR = replace(ProcessIdentity.here(), boot="that of another machine", host="far", pid=7)


def root_in_bucket(monkeypatch, root, tmp_path):
    """Return `root` as another machine sees it: the same bucket, or the same directory on a network file system."""
    uri = uri_of(root)
    if uri is None:
        return root
    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / "cache of another"))
    there = mirror(uri)
    there.mkdir(parents=True, exist_ok=True)
    return there


def test_training_without_heartbeat_is_replaced_and_notices(root, where, monkeypatch, tmp_path, capsys):
    with (
        pytest.raises(LeaseLost, match="another training") as caught,
        RootLease(root, "training", heartbeat_s=1000) as first,
    ):
        first.update(checkpoints=["a"])
        there = root_in_bucket(monkeypatch, root, tmp_path)
        monkeypatch.setattr(module.fcntl, "flock", lambda *_: None)
        began = time.monotonic()
        with RootLease(there, "training", FAR, 0.1, 1.0) as second:
            assert time.monotonic() - began >= 1.0
            assert second.content["checkpoints"] == ["a"]
            second.update(checkpoints=["a", "b"])
            first.update(checkpoints=["a", "c"])  # it wakes up
    assert "process 7 on far" in caught.value.problem and "waiting 1 s" in capsys.readouterr().out
    assert document(where)["checkpoints"] == ["a", "b"] and document(where)["released"]


def test_released_or_long_silent_training_is_replaced_at_once(root, where, monkeypatch, tmp_path):
    with RootLease(root, "training", heartbeat_s=1000):
        pass
    with RootLease(root, "training", FAR, stale_s=1000):
        pass
    before = read_versioned(f"{where}/{LATEST}")
    write_versioned(f"{where}/{LATEST}", {**before.content, "released": False}, before)
    monkeypatch.setattr(module, "SILENT_S", 0.5)
    time.sleep(2)  # times of servers are in seconds
    with RootLease(root, "training", stale_s=1000) as fence:
        fence.update()
    assert document(where)["released"]


def test_heartbeat_is_written(root, where):
    with RootLease(root, "training", heartbeat_s=0.05):
        beats: set[int] = set()

        def read() -> bool:
            beats.add(read_versioned(f"{where}/{LATEST}").number)
            return len(beats) >= 4

        wait_until(read)


def test_heartbeat_continues_after_a_failed_write(tmp_path, capsys):
    with RootLease(tmp_path, "training", heartbeat_s=0.05):
        in_the_way, aside = tmp_path / LATEST, tmp_path / "aside"
        in_the_way.rename(aside)
        in_the_way.mkdir()
        said: list[str] = []
        wait_until(lambda: said.append(capsys.readouterr().out) or "no heartbeat written" in said[-1])
        assert "directory" in said[-1]
        in_the_way.rmdir()
        aside.rename(in_the_way)
        latest = str(tmp_path / LATEST)
        before = read_versioned(latest).number
        wait_until(lambda: read_versioned(latest).number >= before + 2)


def test_invalid_document_is_reported(tmp_path):
    (tmp_path / LATEST).write_text("half of a")
    with pytest.raises(UserError, match=r"latest\.json"), RootLease(tmp_path, "training"):
        pytest.fail("it is not held")


def test_failure_without_results_leaves_no_new_directory(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "root"
    with pytest.raises(UserError, match="refused"), remove_if_unused(root):
        root.mkdir(parents=True)
        with RootLease(root, "training", results="checkpoints/*"):
            (root / "policies").mkdir()
            raise UserError("an input is refused")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("result", ["an earlier run", "a checkpoint"])
def test_failure_keeps_a_directory_with_results_or_of_an_earlier_run(tmp_path: Path, result: str) -> None:
    if result == "an earlier run":
        with RootLease(tmp_path, "training", results="checkpoints/*"):
            pass
    with pytest.raises(UserError), RootLease(tmp_path, "training", results="checkpoints/*"):
        if result == "a checkpoint":
            (tmp_path / "checkpoints" / "1").mkdir(parents=True)
        raise UserError("stopped")
    assert {"latest.json", "lock"} <= set(os.listdir(tmp_path))


def test_second_training_does_not_remove_the_directory_of_the_first(tmp_path: Path) -> None:
    with RootLease(tmp_path, "training", results="checkpoints/*"):
        with pytest.raises(UserError, match="another training"):
            RootLease(tmp_path, "training", results="checkpoints/*").__enter__()
        assert "latest.json" in os.listdir(tmp_path)


@pytest.mark.parametrize("name", ["policies/mine.py", "tensorboard/events.out.tfevents.1", "checkpoints.txt"])
def test_directory_with_other_files_is_not_used(tmp_path: Path, name: str) -> None:
    """A training removes the directory policies and event files of earlier trainings."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with (
        pytest.raises(UserError, match=rf"{name.partition('/')[0]}"),
        RootLease(tmp_path, "training", results="checkpoints/*"),
    ):
        pytest.fail("the block must not run")
    assert (tmp_path / name).read_text() == "mine" and len(os.listdir(tmp_path)) == 1


def test_root_of_a_volume_is_used_and_keeps_its_own_directory(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    with pytest.raises(UserError, match="stopped"), RootLease(tmp_path, "training", results="checkpoints/*"):
        raise UserError("stopped")
    assert os.listdir(tmp_path) == ["lost+found"]


@pytest.mark.parametrize("name", ["trace", "trace/root"])
def test_artifact_is_not_used_as_a_working_directory(tmp_path: Path, name: str) -> None:
    with publish(tmp_path / "trace", "trace") as partial:
        (partial / "root").mkdir()
    with pytest.raises(UserError, match=r"is an artifact|lies within a trace"):
        RootLease(tmp_path / name, "training", results="checkpoints/*").__enter__()
    assert sorted(os.listdir(tmp_path / "trace")) == ["manifest.json", "root"]


def test_training_on_another_machine_is_detected_whatever_its_clock(root, where, monkeypatch, tmp_path):
    """Its clock is eleven minutes late, and it has a heartbeat."""
    real = time.time
    monkeypatch.setattr(module.time, "time", lambda: real() - 660)
    with RootLease(root, "training", heartbeat_s=0.1) as first:
        monkeypatch.setattr(module.time, "time", real)
        there = root_in_bucket(monkeypatch, root, tmp_path)
        monkeypatch.setattr(module.fcntl, "flock", lambda *_: None)
        with pytest.raises(UserError, match=where), RootLease(there, "training", FAR, 0.1, 5.0):
            pytest.fail("it is held")
        first.update(iteration=3)
    assert document(where)["iteration"] == 3


def test_copy_of_a_machine_loses_the_lease(root, where):
    """A machine that was restored from a snapshot has the token of the original."""
    with RootLease(root, "training", heartbeat_s=1000) as first:
        first.update(checkpoints=["1"])
        clone = copy.copy(first)
        clone._words = set()
        first.update(checkpoints=["1", "2a"])
        with pytest.raises(LeaseLost):
            clone.update(checkpoints=["1", "2b"])
        first.update(checkpoints=["1", "2a", "3a"])
    assert document(where)["checkpoints"] == ["1", "2a", "3a"]
