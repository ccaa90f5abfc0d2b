"""Events and curve: each iteration once, however often the training was interrupted, and on every machine."""

import csv
import json
import shutil

import numpy as np

from components.platform.storage.shared_state.workdir import list_files, push_file
from components.platform.storage.uri import uri_of
from components.ppo import summaries as module
from components.ppo.summaries import Summaries
from components.ppo.training_state import TrainingState


def write(root, lengths, iterations, pushed=True, curve=()):
    """Continue from `lengths` and `curve`; return the lengths after each iteration."""
    summaries = Summaries(root)
    summaries.rewind(lengths, curve)
    lengths_after = {}
    for iteration in iterations:
        state = TrainingState(iteration, trained_s=60.0 * iteration)
        summaries.validation(state, iteration / 2)
        summaries.iteration(state, np.full(3, iteration / 10), {"kl": 1.0}, {"compile": 2.0}, 0, 7)
        lengths_after[iteration] = summaries.file_lengths()
        if pushed:
            summaries.push()
    return lengths_after


def curve_rows(root):
    with open(root / "tensorboard" / "training.csv", newline="") as stream:
        return list(csv.DictReader(stream))


def steps(root, tag="reward_distribution/mean"):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    loaded = [
        e for path in sorted((root / "tensorboard").glob("*tfevents*")) for e in EventFileLoader(str(path)).Load()
    ]
    return sorted(event.step for event in loaded for value in event.summary.value if value.tag == tag)


def event_files(root):
    return {name: length for name, length in list_files(root / "tensorboard").items() if "tfevents" in name}


def test_repeated_iterations_appear_once(root):
    sizes = write(root, {}, [1, 2, 3, 4, 5])
    write(root, sizes[3], [4, 5, 6])
    assert steps(root) == [1, 2, 3, 4, 5, 6] == steps(root, "validation/reduction_percent")
    write(root, {}, [1])
    assert steps(root) == [1]


def test_curve_continues_from_the_checkpoint_and_is_uploaded(root):
    summaries = Summaries(root)
    summaries.rewind({})
    summaries.validation(TrainingState(), 0.0)
    for iteration in (1, 2, 3):
        state = TrainingState(iteration, trained_s=60.0 * iteration)
        summaries.iteration(state, np.array([0.0, 0.2]), {}, {}, 0, 7)
        if iteration == 2:
            checkpoint = json.loads(json.dumps([summaries.file_lengths(), summaries.curve]))
    summaries.push()
    write(root, checkpoint[0], [3], curve=checkpoint[1])
    rows = curve_rows(root)
    assert [(row["iteration"], row["minutes"], row["reward_mean"]) for row in rows] == [
        ("0", "0.0", ""),
        *((str(i), f"{i}.0", mean) for i, mean in ((1, "0.1"), (2, "0.1"), (3, str(np.full(3, 0.3).mean())))),
    ]
    assert [row["validation_reduction_percent"] for row in rows] == ["0.0", "", "", "1.5"]
    assert rows[2]["reward_percentile_75"] == str(float(np.percentile([0.0, 0.2], 75)))
    if uri_of(root):
        size = (root / "tensorboard" / "training.csv").stat().st_size
        assert list_files(root / "tensorboard")["training.csv"] == size
    write(root, {}, [1])
    assert [row["iteration"] for row in curve_rows(root)] == ["1"]


def test_summaries_are_restored_on_another_machine(root):
    sizes = write(root, {}, [1, 2, 3])
    sizes = write(root, sizes[2], [3, 4])
    if uri_of(root):
        assert event_files(root) == sizes[4]
        shutil.rmtree(root)
    write(root, sizes[3], [4, 5])
    assert steps(root) == [1, 2, 3, 4, 5]


def test_local_files_are_used_if_not_uploaded(root):
    sizes = write(root, {}, [1, 2], pushed=False)
    sizes = write(root, sizes[2], [3])
    assert steps(root) == [1, 2, 3]
    assert event_files(root) == sizes[3]


def test_large_file_is_followed_by_a_new_one(root, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 4000)
    sizes = write(root, {}, range(1, 21), pushed=False)
    assert len(sizes[20]) > 2 and max(sizes[20].values()) < 6000
    write(root, sizes[11], [12, 13])
    assert steps(root) == list(range(1, 14))


def test_other_files_are_kept(root):
    """Other files are those of TensorBoard's plugins, or a user's notes."""
    sizes = write(root, {}, [1, 2])
    others = [root / "tensorboard" / "plugins" / "profile" / "trace", root / "tensorboard" / "notes.txt"]
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        push_file(path)
    sizes = write(root, sizes[1], [2, 3])
    assert len(list_files(root / "tensorboard")) == len(sizes[3]) + 3 and all(path.is_file() for path in others)
    write(root, {}, [])
    assert len(list_files(root / "tensorboard")) == 3 and all(path.is_file() for path in others)


def test_command_names_the_place_that_others_see(root):
    uri = uri_of(root)
    assert Summaries(root).command() == f"tensorboard --logdir {uri or root}/tensorboard"
