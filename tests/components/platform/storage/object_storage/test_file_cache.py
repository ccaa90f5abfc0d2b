"""The bounded cache for single files of an artifact: eviction, sharing and locks."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage import digest, publish
from components.platform.storage.object_storage.file_cache import FileCache
from components.platform.storage.uri import ObjectUri, mirror, parse_location


@pytest.fixture
def artifact(storage_uri: ObjectUri) -> tuple[str, str]:
    """URI and digest of ten files of 1,000 bytes."""
    uri = storage_uri / "artifact"
    make(uri)
    return str(uri), digest(mirror(uri))


def make(uri: ObjectUri) -> None:
    with publish(mirror(uri), "trace") as partial:
        (partial / "a").mkdir()
        for i in range(10):
            (partial / "a" / f"{i}.bc").write_bytes(bytes([i]) * 1000)


def test_files_keep_their_names_and_are_fetched_once(artifact: tuple[str, str], tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "modules", 1 << 20)
    with cache.using():
        directory = cache.files(*artifact, ["a/1.bc", "a/2.bc"])
        assert (directory / "a" / "1.bc").read_bytes() == b"\1" * 1000
        assert (directory / "a" / "2.bc").read_bytes() == b"\2" * 1000
        assert sorted(path.name for path in (directory / "a").iterdir()) == ["1.bc", "2.bc"]
        assert cache.files(*artifact, ["a/1.bc", "a/2.bc"]) == directory
    assert FileCache(tmp_path / "modules", 1 << 20)._bytes == 2000


def test_least_recently_used_is_evicted_and_entries_in_use_stay(artifact: tuple[str, str], tmp_path: Path) -> None:
    cache, other = FileCache(tmp_path / "modules", 3000), FileCache(tmp_path / "modules", 3000)
    with other.using():
        used = other.files(*artifact, ["a/0.bc"])  # simulates another process
        for i in range(1, 10):
            with cache.using():
                assert cache.files(*artifact, [f"a/{i}.bc"]).is_dir()
        assert (used / "a" / "0.bc").is_file()
        held = {path.name for entry in (tmp_path / "modules").iterdir() for path in entry.rglob("*.bc")}
        assert {"0.bc", "9.bc"} <= held and len(held) <= 3
    for i in range(1, 4):
        with cache.using():
            cache.files(*artifact, [f"a/{i}.bc"])
    assert not used.exists()


def test_many_threads_share_a_full_cache(artifact: tuple[str, str], tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "modules", 2000)
    wrong: list[object] = []

    def use(start: int) -> None:
        try:
            for i in range(start, start + 30):
                with cache.using():
                    content = (cache.files(*artifact, [f"a/{i % 10}.bc"]) / "a" / f"{i % 10}.bc").read_bytes()
                    assert content == bytes([i % 10]) * 1000
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=use, args=(start,)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not list((tmp_path / "modules").glob(".*"))


def test_artifact_with_another_digest_is_refused(artifact: tuple[str, str], tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "modules", 2000)
    with pytest.raises(UserError, match="replaced"), cache.using():
        cache.files(artifact[0], "0" * 64, ["a/1.bc"])


def test_cache_opens_while_other_processes_fill_and_evict(tmp_path: Path) -> None:
    """Simulates several agents of one node that start together."""
    directory, stopped = tmp_path / "modules", threading.Event()

    def churn(key: str) -> None:
        while not stopped.is_set():
            partial = directory / f".{key}-1"
            (partial / "a").mkdir(parents=True)
            (partial / "a" / "1.bc").write_bytes(bytes(1000))
            partial.rename(directory / key)
            shutil.rmtree(directory / key)

    others = [threading.Thread(target=churn, args=(f"{number:032}",)) for number in range(2)]
    for other in others:
        other.start()
    try:
        until_s = time.monotonic() + 2
        while time.monotonic() < until_s:
            assert 0 <= FileCache(directory, 1 << 20)._bytes <= 4000
    finally:
        stopped.set()
        for other in others:
            other.join()


def test_kill_during_eviction_leaves_no_incomplete_entry(
    artifact: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a/1.bc", "a/2.bc"]
    cache = FileCache(tmp_path / "modules", 2500)
    with cache.using():
        entry = cache.files(*artifact, names)

    def raise_killed(directory: Path, ignore_errors: bool = False) -> None:
        for path in sorted(Path(directory).rglob("*.bc"))[:1]:
            path.unlink()

    monkeypatch.setattr(shutil, "rmtree", raise_killed)
    with cache.using():
        cache.files(*artifact, ["a/3.bc"])
    monkeypatch.undo()
    with cache.using():
        assert cache.files(*artifact, names) == entry
        assert all((entry / name).is_file() for name in names)


def test_artifact_that_is_published_again_is_read_where_it_is_now(artifact: tuple[str, str], tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "modules", 1 << 20)
    with cache.using():
        cache.files(*artifact, ["a/1.bc"])
    uri = parse_location(artifact[0])
    assert isinstance(uri, ObjectUri)
    with publish(mirror(uri), "trace") as partial:
        (partial / "other").touch()
    make(uri)
    with cache.using():
        assert (cache.files(*artifact, ["a/2.bc"]) / "a" / "2.bc").read_bytes() == b"\2" * 1000
    with publish(mirror(uri), "trace") as partial:
        (partial / "other").touch()
    with pytest.raises(UserError, match="replaced"), cache.using():
        cache.files(*artifact, ["a/3.bc"])
