"""The state of a search, in a directory and in object storage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.core.compiler.quarantine import Quarantine
from components.core.formats.toolchain import Toolchain
from components.platform.errors import UserError
from components.platform.storage.object_storage.object_store import StorageError
from components.platform.storage.shared_state import root_lease
from components.platform.storage.shared_state.process_identity import ProcessIdentity
from components.platform.storage.shared_state.root_lease import LeaseLost, RootLease
from components.platform.storage.uri import ObjectUri, mirror
from components.tune import state as module
from components.tune.__main__ import _search_next_to
from components.tune.config import TuneConfig
from components.tune.state import ModuleState, SearchDirectory, search_folder
from components.tune.step import _identify_inputs, _publish_at_the_end, _summarize
from tests.support.buckets import names, remove_object

STATE = ModuleState(
    900, "a.cc", 850, 800, {("f", "g", 0): 1}, frozenset({("f", "g", 0), ("f", "h", 2)}), 3, gained_bytes=50.5
)
INPUTS = {"policy": "1"}
ELSEWHERE = replace(ProcessIdentity.here(), boot="that of another machine", host="far")


@contextmanager
def searching(root: Path, inputs: Mapping[str, str] = INPUTS, **lease: Any) -> Iterator[SearchDirectory]:
    folder = search_folder(root, inputs)
    folder.mkdir(parents=True, exist_ok=True)
    with RootLease(folder, "search", **lease) as held:
        yield SearchDirectory(held, inputs)


@pytest.fixture
def on_machine(storage_uri: ObjectUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Returns the root directory as the machine of a name sees it."""

    def use(name: str) -> Path:
        monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / f"cache of {name}"))
        return mirror(storage_uri)

    return use


def test_written_state_is_read_back(root: Path) -> None:
    with searching(root) as search:
        search.save("m", STATE)
        search.publish()
    with searching(root) as search:
        assert search.load("m") == STATE and search.load("n") is None
    with searching(root, {"policy": "2"}) as search:
        assert search.load("m") is None


def test_published_state_continues_on_another_machine(
    on_machine: Callable[[str], Path], storage_uri: ObjectUri, monkeypatch: pytest.MonkeyPatch
) -> None:
    with searching(on_machine("one")) as search:
        search.save("early", STATE)
        assert not [name for name in names(storage_uri) if "/state/" in name], "less than a minute has passed"
        monkeypatch.setattr(search, "_publish_at_s", 0)
        search.save("m", STATE)
        search.save("late", STATE)  # then the machine is lost
    with searching(on_machine("two")) as search:
        assert search.load("early") == search.load("m") == STATE and search.load("late") is None
        search.save("n", replace(STATE, rounds=4))
        search.publish()
    with searching(on_machine("one")) as search:  # whose mirror is older
        assert search.load("n") == replace(STATE, rounds=4) and search.load("late") is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), UserError("the step tune took more than 9 s", "raise it")])
def test_interrupt_and_time_limit_publish_the_state(on_machine: Callable[[str], Path], error: BaseException) -> None:
    with pytest.raises(type(error)), searching(on_machine("one")) as search, _publish_at_the_end(search):
        search.save("m", STATE)
        raise error
    with searching(on_machine("two")) as search:
        assert search.load("m") == STATE


def test_unreadable_published_state_is_refused(on_machine: Callable[[str], Path], storage_uri: ObjectUri) -> None:
    with searching(on_machine("one")) as search:
        search.save("m", STATE)
        search.publish()
    (damaged,) = [name for name in names(storage_uri) if "/data/" in name and "/modules/" in name]
    remove_object(storage_uri, damaged)
    message = f"the state of the search in {storage_uri}/[0-9a-f]+ cannot be read: .* is damaged"
    with pytest.raises(UserError, match=message), searching(on_machine("two")):
        pytest.fail("it is damaged")


def test_storage_that_does_not_answer_is_a_warning_during_the_search(
    on_machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def fail(_output: Path, _kind: str) -> Iterator[Path]:
        raise StorageError("it does not answer", "wait")
        yield

    with searching(on_machine("one")) as search:
        with monkeypatch.context() as outage:
            outage.setattr(module, "publish", fail)
            outage.setattr(search, "_publish_at_s", 0)
            search.save("m", STATE)
            assert "not published" in capsys.readouterr().out
            search.save("n", STATE)
            assert "warning" not in capsys.readouterr().out, "it waits before it tries again"
            with pytest.raises(StorageError):
                search.publish()
        search.publish()
    with searching(on_machine("two")) as search:
        assert search.load("m") == search.load("n") == STATE


def test_second_search_is_refused(root: Path) -> None:
    refused = pytest.raises(UserError, match="another search")
    with searching(root), refused, searching(root):
        pytest.fail("it is held")


def test_search_that_was_replaced_publishes_nothing(
    on_machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_lease.fcntl, "flock", lambda *_: None)  # as between machines
    suspended = pytest.raises(LeaseLost, match="another search")
    with suspended, searching(on_machine("one"), heartbeat_s=1000) as first:
        first.save("m", STATE)
        with searching(on_machine("two"), me=ELSEWHERE, heartbeat_s=0.1, stale_s=0.5) as second:
            second.save("n", STATE)
            second.publish()
            on_machine("one")
            first.publish()
    with searching(on_machine("two")) as search:
        assert search.load("m") is None and search.load("n") == STATE


def test_state_of_other_inputs_is_refused(tmp_path: Path) -> None:
    with searching(tmp_path) as search:
        search.save("m", STATE)
    other = {"policy": "2"}
    shutil.copytree(search_folder(tmp_path, INPUTS), search_folder(tmp_path, other))
    with pytest.raises(UserError, match="other inputs"), searching(tmp_path, other):
        pytest.fail("it was copied")


@pytest.mark.parametrize(
    ("key", "value"),
    [("found", [["f", "g", 0]]), ("tried", [["f", 1, 2]]), ("heuristic_bytes", "900"), ("finished", 2)],
)
def test_damaged_state_is_refused(key: str, value: Any, tmp_path: Path) -> None:
    with searching(tmp_path) as search:
        search.save("m", STATE)
        (path,) = tmp_path.glob("*/modules/*.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
        with pytest.raises(UserError, match=key):
            search.load("m")


def test_state_is_kept_next_to_the_output(tmp_path: Path, cache: Path) -> None:
    assert _search_next_to(tmp_path / "plan") == tmp_path / "plan-search"
    assert _search_next_to(mirror(ObjectUri("gs", "bucket", "a/plan"))) == mirror(
        ObjectUri("gs", "bucket", "a/plan-search")
    )


def test_search_of_an_earlier_version_is_continued_and_keys_of_its_results_have_no_spaces(tmp_path: Path) -> None:
    config = TuneConfig(tmp_path, tmp_path, tmp_path, tmp_path, tmp_path / "plan")
    assert search_folder(tmp_path, _identify_inputs(config)).name == "0ae1c35ae432247a"
    toolchain = Toolchain(tmp_path, "training", "19.1.7", "x86_64-pc-linux-gnu", {}, {})
    figures = _summarize(config, toolchain, 1, {"m": STATE}, ["m"], Quarantine(0.5))
    assert {"corpus", "training_clang", "policy"} <= set(figures) and not [name for name in figures if " " in name]
