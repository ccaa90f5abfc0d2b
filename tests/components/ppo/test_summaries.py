"""TensorBoard's events: each iteration once, however often the training was interrupted, and on every machine."""

import shutil

import numpy as np
import pytest

from components.platform.storage.shared_state.workdir import listing, push_file
from components.platform.storage.uri import mirror, uri_of
from components.ppo import summaries as module
from components.ppo.summaries import Summaries


@pytest.fixture(params=["path", "uri"])
def root(request, tmp_path):
    return tmp_path / "root" if request.param == "path" else mirror(request.getfixturevalue("place"))


def write(root, lengths, iterations, pushed=True):
    """Goes on from `lengths`; returns what `kept` said after each iteration."""
    summaries = Summaries(root)
    summaries.rewind(lengths)
    kept = {}
    for iteration in iterations:
        summaries.validation(iteration, iteration / 2)
        summaries.iteration(iteration, np.full(3, iteration / 10), {"kl": 1.0}, {"compile": 2.0}, 0, 7)
        kept[iteration] = summaries.file_lengths()
        if pushed:
            summaries.push()
    return kept


def steps(root, tag="reward_distribution/mean"):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    events = [e for path in sorted((root / "tensorboard").iterdir()) for e in EventFileLoader(str(path)).Load()]
    return sorted(event.step for event in events for value in event.summary.value if value.tag == tag)


def test_repeated_iterations_appear_once(root):
    kept = write(root, {}, [1, 2, 3, 4, 5])
    write(root, kept[3], [4, 5, 6])
    assert steps(root) == [1, 2, 3, 4, 5, 6] == steps(root, "validation/reduction_percent")
    write(root, {}, [1])
    assert steps(root) == [1]


def test_summaries_are_restored_on_another_machine(root):
    kept = write(root, {}, [1, 2, 3])
    kept = write(root, kept[2], [3, 4])
    if uri_of(root):
        assert listing(root / "tensorboard") == kept[4]
        shutil.rmtree(root)
    write(root, kept[3], [4, 5])
    assert steps(root) == [1, 2, 3, 4, 5]


def test_local_files_are_used_if_not_uploaded(root):
    kept = write(root, {}, [1, 2], pushed=False)
    kept = write(root, kept[2], [3])
    assert steps(root) == [1, 2, 3]
    assert listing(root / "tensorboard") == kept[3]


def test_large_file_is_followed_by_a_new_one(root, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 4000)
    kept = write(root, {}, range(1, 21), pushed=False)
    assert len(kept[20]) > 2 and max(kept[20].values()) < 6000
    write(root, kept[11], [12, 13])
    assert steps(root) == list(range(1, 14))


def test_other_files_are_kept(root):
    """Other files are those of TensorBoard's plugins, or a user's notes."""
    kept = write(root, {}, [1, 2])
    others = [root / "tensorboard" / "plugins" / "profile" / "trace", root / "tensorboard" / "notes.txt"]
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        push_file(path)
    kept = write(root, kept[1], [2, 3])
    assert len(listing(root / "tensorboard")) == len(kept[3]) + 2 and all(path.is_file() for path in others)
    write(root, {}, [])
    assert len(listing(root / "tensorboard")) == 2 and all(path.is_file() for path in others)


def test_command_names_the_place_that_others_see(root):
    place = uri_of(root)
    assert Summaries(root).command() == f"tensorboard --logdir {place or root}/tensorboard"
