"""Training with the real training clang: the same seed gives the same rewards. Faults are in test_faults.py."""

import os
import subprocess
from pathlib import Path

import pytest

from components.policy.dense import DensePolicy
from tests.components.ppo.runs import ITERATIONS, step, train


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
