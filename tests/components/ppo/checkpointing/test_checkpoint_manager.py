"""Checkpoints in a root directory: whole or not there, and the newest that is whole is found."""

import os
import shutil
import time
from dataclasses import replace

import pytest

from components.platform.errors import UserError
from components.platform.storage.object_storage.object_store import StorageError
from components.platform.storage.shared_state import root_lease as fences
from components.platform.storage.shared_state.process_identity import ProcessIdentity
from components.platform.storage.shared_state.root_lease import LATEST, LeaseLost, RootLease
from components.platform.storage.shared_state.versioned_json import Conflict
from components.platform.storage.shared_state.workdir import list_files, remove_file
from components.platform.storage.uri import uri_of
from components.ppo.checkpointing import checkpoint_manager
from components.ppo.checkpointing.checkpoint import write
from components.ppo.checkpointing.checkpoint_manager import BackgroundSaver, CheckpointManager
from components.ppo.checkpointing.fingerprint import EarlierCredit
from tests.components.ppo.points import checkpoint, earlier
from tests.support.buckets import names, put_object, remove_object

FAR = replace(ProcessIdentity.here(), boot="that of another machine")


def folders(root):
    return sorted({name.partition("/")[0] for name in list_files(root / "checkpoints")})


def train(root, *iterations, keep=2, **options):
    with RootLease(root, "training", **options) as fence:
        store = CheckpointManager(fence, keep)
        loaded = store.newest()
        for iteration in iterations:
            store.save(checkpoint(iteration))
        return loaded


def newest(root):
    checkpoint = train(root)
    return checkpoint and checkpoint.iteration


def on_another_machine(root):
    """The mirror is empty there."""
    if uri_of(root):
        shutil.rmtree(root)
        root.mkdir()


def change(root, folder, name, data):
    """In the bucket, if that is where it is: None removes the file."""
    uri = uri_of(root)
    if uri is None:
        for path in (root / "checkpoints" / folder).rglob(name):
            path.unlink() if data is None else path.write_bytes(data)
        return
    for stored in names(uri):
        if stored.startswith(f"checkpoints/{folder}/") and stored.endswith(f"/{name}"):
            remove_object(uri, stored) if data is None else put_object(uri, stored, data)


def test_newest_is_read_and_old_ones_are_removed(root):
    assert train(root, 1, 2, 3, 10) is None
    on_another_machine(root)
    checkpoint = train(root)
    assert checkpoint.iteration == 10 and checkpoint.variables["step"] == 10
    assert [name.partition("-")[0] for name in folders(root)] == ["000003", "000010"]
    train(root, 999_999, 1_000_000)
    assert newest(root) == 1_000_000


def test_only_the_newest_is_downloaded(root):
    train(root, 1, 2, 3, keep=3)
    on_another_machine(root)
    assert newest(root) == 3
    assert len(os.listdir(root / "checkpoints")) == (1 if uri_of(root) else 3)
    train(root, 4, keep=3)  # one goes that is not here
    assert [name.partition("-")[0] for name in folders(root)] == ["000002", "000003", "000004"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("manifest.json", None),
        ("variables.npz", b"PK"),
        ("state.json", b"{}"),
        ("weights.npz", None),
    ],
)
def test_damaged_newest_checkpoint_is_skipped_and_removed_later(root, name, data, capsys):
    train(root, 1, 2)
    damaged = folders(root)[-1]
    change(root, damaged, name, data)
    on_another_machine(root)
    assert newest(root) == 1
    assert damaged in capsys.readouterr().out
    train(root, 2, 3)
    assert damaged not in folders(root) and newest(root) == 3


@pytest.mark.parametrize("number", [0, 1])
def test_removed_checkpoint_is_skipped(root, number):
    train(root, 1, 2)
    removed = folders(root)[number]
    for name in list_files(root / "checkpoints" / removed):
        remove_file(root / "checkpoints" / removed / name)
    shutil.rmtree(root / "checkpoints" / removed)
    train(root, 3, 4)
    assert [name.partition("-")[0] for name in folders(root)] == ["000003", "000004"] and newest(root) == 4


def test_mirror_of_a_checkpoint_is_not_trusted(root):
    train(root, 1)
    if uri_of(root):
        (root / "checkpoints" / folders(root)[0] / "state.json").write_text("{}")
    assert newest(root) == 1


def test_no_readable_checkpoint_is_reported(root):
    train(root, 1, 2)
    for folder in folders(root):
        change(root, folder, "variables.npz", b"")
    on_another_machine(root)
    with pytest.raises(UserError, match=r"none of the checkpoints 000001-.*, 000002-.* can be read"):
        newest(root)


def test_checkpoints_with_earlier_credit_are_refused(root):
    with RootLease(root, "training") as fence:
        store = CheckpointManager(fence, 2)
        for iteration in (1, 2):
            store.save(earlier(checkpoint(iteration)))
    on_another_machine(root)
    with pytest.raises(EarlierCredit, match="started by an earlier version") as caught:
        newest(root)
    assert str(uri_of(root) or root) in caught.value.problem and len(folders(root)) == 2


def test_unreachable_object_storage_is_not_reported_as_damage(root, monkeypatch):
    train(root, 1)
    with RootLease(root, "training") as fence:
        store = CheckpointManager(fence, 2)
        fetch = "components.ppo.checkpointing.checkpoint_manager.fetch"
        monkeypatch.setattr(fetch, lambda *_: (_ for _ in ()).throw(StorageError("away")))
        if uri_of(root):
            with pytest.raises(StorageError, match="away"):
                store.newest()
        else:
            assert store.newest().iteration == 1


def test_leftovers_of_killed_trainings_are_removed(root):
    """A checkpoint that was whole but not named yet, and half of one."""
    train(root, 1)
    write(root / "checkpoints" / "000002-01234567", checkpoint(2))
    (root / "checkpoints" / ".000003-01234567.partial-89abcdef").mkdir()
    (root / "checkpoints" / "000001.mine").mkdir()
    assert newest(root) == 1
    assert [name.partition("-")[0] for name in folders(root)] == ["000001"]
    left = {name for name in os.listdir(root / "checkpoints") if not name.startswith("000001-")}
    assert left == {"000001.mine"}, "what has another name is not ours to remove"


@pytest.mark.parametrize("swept", [True, False])
def test_replaced_training_changes_nothing(root, monkeypatch, swept):
    """It is silent for a minute, before or after it removes what earlier trainings left; then it wakes up."""
    train(root, 1, 2)
    with pytest.raises(LeaseLost), RootLease(root, "training", heartbeat_s=1000) as lease:
        old = CheckpointManager(lease, 2)
        if swept:
            assert old.newest().iteration == 2
        monkeypatch.setattr(fences.fcntl, "flock", lambda *_: None)
        train(root, 3, 4, me=FAR, heartbeat_s=0.1, stale_s=0.3)
        before = list_files(root / "checkpoints")
        try:
            old.save(checkpoint(3)) if swept else old.newest()
        finally:
            assert list_files(root / "checkpoints") == before
    on_another_machine(root)
    assert newest(root) == 4


def test_checkpoint_that_the_successor_has_listed_is_kept(root, monkeypatch):
    """The list was written, but another training took over before the answer came."""
    write_once = fences.write_versioned

    def write_and_be_replaced(location, content, before, word):
        write_once(location, content, before, word)
        monkeypatch.setattr(fences, "write_versioned", write_once)
        monkeypatch.setattr(fences.fcntl, "flock", lambda *_: None)
        train(root, me=FAR, heartbeat_s=0.1, stale_s=0.3)
        raise Conflict("the answer is lost", "")

    with pytest.raises(LeaseLost), RootLease(root, "training", heartbeat_s=1000) as lease:
        store = CheckpointManager(lease, 2)
        store.save(checkpoint(1))
        monkeypatch.setattr(fences, "write_versioned", write_and_be_replaced)
        store.save(checkpoint(2))
    on_another_machine(root)
    assert newest(root) == 2


def test_seconds_after_the_last_checkpoint_of_a_killed_training_are_told(root, monkeypatch):
    train(root, 1)
    with RootLease(root, "training", heartbeat_s=1000) as lease:
        assert CheckpointManager(lease, 2).repeated_s == 0
        lease.update(saved=time.time() - 7)
        monkeypatch.setattr(lease, "_lost", LeaseLost("killed", ""))  # not released
    monkeypatch.setattr(fences, "SILENT_S", -1)
    with RootLease(root, "training", FAR, heartbeat_s=1000) as lease:
        assert 6 < CheckpointManager(lease, 2).repeated_s < 9


def test_checkpoints_without_document_are_found(root):
    for iteration in (9, 10):
        write(root / "checkpoints" / f"{iteration:06d}", checkpoint(iteration))
    assert newest(root) == 10
    train(root, 11)
    assert [name.partition("-")[0] for name in folders(root)] == ["000010", "000011"]
    remove_file(root / LATEST)
    assert newest(root) == 11


@pytest.mark.parametrize("root", ["gs", "s3"], indirect=True)
def test_checkpoint_whose_files_were_swept_before_its_manifest_appeared_is_none(root):
    """A trainer that stopped for a day writes the manifest without an answer, and leaves no document."""
    train(root, 1)
    change(root, folders(root)[0], "state.json", None)
    remove_file(root / LATEST)
    assert train(root, 2) is None and newest(root) == 2


@pytest.mark.parametrize("written", [False, True])
def test_checkpoint_without_an_answer_is_removed_by_the_next(root, monkeypatch, written):
    """Whether the document with it was written, as when the answer is lost, or not."""
    with RootLease(root, "training") as fence:
        store, update = CheckpointManager(fence, 1), fence.update

        def fail(**fields):
            if written:
                update(**fields)
            raise StorageError("away")

        store.save(checkpoint(1))
        monkeypatch.setattr(fence, "update", fail)
        with pytest.raises(StorageError):
            store.save(checkpoint(2))
        monkeypatch.setattr(fence, "update", update)
        store.save(checkpoint(3))
        assert [name.partition("-")[0] for name in folders(root)] == ["000003"]


def test_checkpoint_that_could_not_be_removed_is_removed_later(root, monkeypatch):
    with RootLease(root, "training") as fence:
        store = CheckpointManager(fence, 1)
        store.save(checkpoint(1))
        with monkeypatch.context() as broken, pytest.raises(StorageError):
            broken.setattr(checkpoint_manager, "discard", fails)
            store.save(checkpoint(2))
        store.save(checkpoint(3))
        assert [name.partition("-")[0] for name in folders(root)] == ["000003"]


def fails(*_arguments):
    raise StorageError("away")


class Away(CheckpointManager):
    """Takes the place of a CheckpointManager whose object storage answers only when `away` is False."""

    def __init__(self):
        self.away, self.saved = True, []

    def save(self, point):
        if self.away:
            fails()
        self.saved.append(point.iteration)


def test_training_goes_on_while_object_storage_is_away(monkeypatch, capsys):
    clock = [100.0]
    monkeypatch.setattr(checkpoint_manager.time, "monotonic", lambda: clock[0])
    store = Away()
    saver = BackgroundSaver(store, lambda: fails() if store.away and clock[0] < 200 else None)
    for iteration in range(1, 9):  # seven minutes: first the event files cannot be pushed, then checkpoints not written
        saver.keep(checkpoint(iteration))
        saver.start()
        saver.join()
        clock[0] += 60
    assert saver.saved == 0 and capsys.readouterr().out.count("no checkpoint is written, and training goes on") == 1
    with pytest.raises(StorageError):
        saver.save()
    store.away = False
    saver.start()
    saver.save()
    assert store.saved == [8] and saver.saved == 8
    store.away = True
    for _ in range(2):
        saver.keep(checkpoint(9))
        saver.start()
        saver.join()
        clock[0] += 899
    saver.start()
    saver.join()
    clock[0] += 2
    with pytest.raises(StorageError):
        saver.start()
