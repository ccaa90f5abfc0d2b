"""Training with the real training clang: the same seed gives the same rewards, also when it is killed on the way."""

import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from components.formats.splits import Splits, write_splits
from components.formats.toolchain import load_toolchain
from components.formats.vocab import load_vocab
from components.policy.dense import DensePolicy
from components.storage import write_manifest

ITERATIONS = 5
CPP = """#include <map>
#include <string>
#include <vector>
static std::map<std::string, std::vector<int>> store;
void add{i}(const std::string &key, int value) {{ store[key].push_back(value + {i}); }}
int sum{i}(const std::string &key) {{ int s = {i}; for (int v : store[key]) s += v; return s; }}
"""


def step(name, *arguments, **options):
    return subprocess.run([sys.executable, "-m", f"components.{name}", *map(str, arguments)], check=True, **options)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, make_corpus, training_toolchain):
    """Corpus, trace and an untrained policy: the arguments that every run of the step shares."""
    root = tmp_path_factory.mktemp("ppo")
    names = [f"app/m{i}.cpp" for i in range(4)]
    corpus = make_corpus(root / "corpus", {name: CPP.format(i=i) for i, name in enumerate(names)})
    modules = tuple(module.name for module in corpus)
    write_splits(corpus.directory, Splits(0, modules[:3], modules[3:], ()))
    write_manifest(corpus.directory)
    # Relative, as a user types it, though the compiles run in other directories.
    step(
        "trace", "--corpus", os.path.relpath(corpus.directory), "--toolchain", os.path.relpath(training_toolchain),
        "--output", root / "trace",
    )  # fmt: skip
    step("vocab", "--trace", root / "trace", "--output", root / "vocab")
    vocab = load_vocab(root / "vocab")
    features = tuple(f for f in load_toolchain(training_toolchain).features["inlining"] if f.name in vocab)
    random, sizes = np.random.default_rng(0), [3 * len(features), 64, 64, 32, 2]
    layers = tuple(
        (random.normal(0, (2 / a) ** 0.5, (a, b)).astype(np.float32), np.zeros(b, np.float32))
        for a, b in itertools.pairwise(sizes)
    )
    (root / "start").mkdir()
    DensePolicy("inlining", features, vocab, layers).save(root / "start")
    return [
        "--corpus", corpus.directory, "--toolchain", training_toolchain, "--trace", root / "trace",
        "--warmstart", root / "start", "--iterations", ITERATIONS, "--modules", 2, "--samples", 3,
        "--validate-every", 2, "--workers", "local:2", "--seed", 5,
    ]  # fmt: skip


def train(inputs, where: Path):
    step("ppo", *inputs, "--root-dir", where / "root", "--output", where / "policy")
    return json.loads((where / "policy" / "report.json").read_text())


@pytest.fixture(scope="module")
def first(inputs, tmp_path_factory):
    where = tmp_path_factory.mktemp("first")
    return where, train(inputs, where)


@pytest.mark.slow
def test_run_leaves_policy_report_and_tensorboard(first):
    where, report = first
    assert len(report["mean_rewards"]) == ITERATIONS
    assert [iteration for iteration, _ in report["validation_history"]] == [0, 2, 4, ITERATIONS]
    best = max(percent for _, percent in report["validation_history"])
    assert report["validation_reduction_percent"] == best
    assert {"policy.so", "policy.cpp", "policy.json", "manifest.json"} <= {p.name for p in (where / "policy").iterdir()}
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(where / "root" / "tensorboard"))
    events.Reload()
    tags = set(events.Tags()["tensors"])
    assert {"reward_distribution/mean", "reward_distribution/percentile_50", "losses/kl", "seconds/compile"} <= tags


@pytest.mark.slow
def test_same_seed_gives_the_same_rewards_from_relative_paths(inputs, first, tmp_path):
    relative = [os.path.relpath(value) if isinstance(value, Path) else value for value in inputs]
    again = train(relative, Path(os.path.relpath(tmp_path)))
    assert again["mean_rewards"] == first[1]["mean_rewards"]
    assert again["validation_history"] == first[1]["validation_history"]


@pytest.mark.slow
def test_killed_run_goes_on_and_ends_as_if_nothing_had_happened(inputs, first, tmp_path):
    command = [sys.executable, "-m", "components.ppo", *map(str, inputs)]
    command += ["--root-dir", str(tmp_path / "root"), "--output", str(tmp_path / "policy")]
    killed = subprocess.Popen(command)
    second = tmp_path / "root" / "checkpoints" / "000002" / "manifest.json"
    deadline = time.monotonic() + 240
    while not second.exists() and killed.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert second.exists() and not (tmp_path / "policy").exists()
    resumed = train(inputs, tmp_path)
    assert resumed["mean_rewards"] == first[1]["mean_rewards"]
    assert resumed["validation_history"] == first[1]["validation_history"]


@pytest.mark.slow
def test_root_directory_in_use_is_refused(inputs, tmp_path):
    (tmp_path / "root").mkdir()
    with open(tmp_path / "root" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(subprocess.CalledProcessError) as caught:
            step("ppo", *inputs, "--root-dir", tmp_path / "root", "--output", tmp_path / "policy", stderr=-1, text=True)
    assert "another training is running" in caught.value.stderr and "Traceback" not in caught.value.stderr


@pytest.mark.slow
def test_policy_with_a_feature_that_the_compiler_lacks_is_refused_before_training(inputs, tmp_path):
    from components.policy.dense import read_dense

    start = Path(inputs[inputs.index("--warmstart") + 1])
    dense = read_dense(start)
    renamed = tuple(
        type(f)("colour", f.dtype, f.shape) if f.name == "threshold" else f for f in dense.features
    )
    buckets = {**dense.buckets, "colour": dense.buckets["threshold"]}
    (tmp_path / "other").mkdir()
    DensePolicy("inlining", renamed, buckets, dense.layers).save(tmp_path / "other")
    arguments = [*map(str, inputs), "--root-dir", tmp_path / "root", "--output", tmp_path / "policy"]
    arguments[arguments.index(str(start))] = tmp_path / "other"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        step("ppo", *arguments, capture_output=True, text=True)
    assert "colour" in caught.value.stderr and "Traceback" not in caught.value.stderr
    assert not (tmp_path / "policy").exists()
