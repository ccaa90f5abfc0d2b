"""Some files of an artifact, kept as long as there is room and as they are in use."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from components.console import UserError
from components.storage import digest, publish
from components.storage.portion import Portions
from components.storage.uri import GsUri, mirror


@pytest.fixture
def artifact(place: GsUri) -> tuple[str, str]:
    """URI and digest of ten files of 1,000 bytes."""
    uri = place / "artifact"
    with publish(mirror(uri)) as partial:
        (partial / "a").mkdir()
        for i in range(10):
            (partial / "a" / f"{i}.bc").write_bytes(bytes([i]) * 1000)
    return str(uri), digest(mirror(uri))


def test_files_come_with_their_names_and_once(artifact: tuple[str, str], tmp_path: Path) -> None:
    portions = Portions(tmp_path / "modules", 1 << 20)
    with portions.using():
        place = portions.files(*artifact, ["a/1.bc", "a/2.bc"])
        assert (place / "a" / "1.bc").read_bytes() == b"\1" * 1000
        assert (place / "a" / "2.bc").read_bytes() == b"\2" * 1000
        assert sorted(path.name for path in (place / "a").iterdir()) == ["1.bc", "2.bc"]
        assert portions.files(*artifact, ["a/1.bc", "a/2.bc"]) == place
    assert Portions(tmp_path / "modules", 1 << 20).held_bytes == 2000


def test_the_longest_unused_goes_and_what_is_used_stays(artifact: tuple[str, str], tmp_path: Path) -> None:
    portions, other = Portions(tmp_path / "modules", 3000), Portions(tmp_path / "modules", 3000)
    with other.using():
        used = other.files(*artifact, ["a/0.bc"])  # by another process, as it were
        for i in range(1, 10):
            with portions.using():
                assert portions.files(*artifact, [f"a/{i}.bc"]).is_dir()
        assert (used / "a" / "0.bc").is_file()
        held = {path.name for entry in (tmp_path / "modules").iterdir() for path in entry.rglob("*.bc")}
        assert {"0.bc", "9.bc"} <= held and len(held) <= 3
    for i in range(1, 4):
        with portions.using():
            portions.files(*artifact, [f"a/{i}.bc"])
    assert not used.exists()


def test_many_threads_share_what_there_is_room_for(artifact: tuple[str, str], tmp_path: Path) -> None:
    portions = Portions(tmp_path / "modules", 2000)
    wrong: list[object] = []

    def use(start: int) -> None:
        try:
            for i in range(start, start + 30):
                with portions.using():
                    content = (portions.files(*artifact, [f"a/{i % 10}.bc"]) / "a" / f"{i % 10}.bc").read_bytes()
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


def test_another_content_than_was_asked_for_is_told(artifact: tuple[str, str], tmp_path: Path) -> None:
    portions = Portions(tmp_path / "modules", 2000)
    with pytest.raises(UserError, match="not what it was"), portions.using():
        portions.files(artifact[0], "0" * 64, ["a/1.bc"])


def test_a_cache_is_opened_while_others_fill_and_empty_it(tmp_path: Path) -> None:
    """As agents of one node do that begin together."""
    directory, ended = tmp_path / "modules", threading.Event()

    def churn(key: str) -> None:
        while not ended.is_set():
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
            assert 0 <= Portions(directory, 1 << 20).held_bytes <= 4000
    finally:
        ended.set()
        for other in others:
            other.join()


def test_a_kill_amid_an_eviction_leaves_no_entry_that_lacks_files(
    artifact: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a/1.bc", "a/2.bc"]
    portions = Portions(tmp_path / "modules", 2500)
    with portions.using():
        entry = portions.files(*artifact, names)

    def killed(directory: Path, ignore_errors: bool = False) -> None:
        for path in sorted(Path(directory).rglob("*.bc"))[:1]:
            path.unlink()

    monkeypatch.setattr(shutil, "rmtree", killed)
    with portions.using():
        portions.files(*artifact, ["a/3.bc"])
    monkeypatch.undo()
    with portions.using():
        assert portions.files(*artifact, names) == entry
        assert all((entry / name).is_file() for name in names)
