"""Training with the real training clang: the same seed gives the same rewards. Faults are in test_faults.py."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components.core.formats.corpus import load_corpus
from components.platform.storage import write_manifest
from tests.components.ppo.runs import ITERATIONS, LEARNING_BY_DEFAULT, step, train

PPO_LOSSES = ("policy_gradient_loss", "prior_kl", "entropy", "kl", "clip_fraction", "learning_rate")
LOSSES = {
    ("counterfactual", "dqn"): ("attribution_error_percent", "value_loss", "explained_variance"),
    ("function", "ppo"): PPO_LOSSES,
}
"""Credit assignment and algorithm -> scalars of the update in TensorBoard."""


def how(report):
    """Credit assignment and algorithm of a training."""
    step = report["hyperparameters"]["step"]
    return step["credit_assignment"], step["algorithm"]


@pytest.mark.tf
def test_run_leaves_policy_report_and_tensorboard(first):
    where, report = first
    assert len(report["mean_rewards"]) == ITERATIONS
    assert [iteration for iteration, _ in report["validation_history"]] == [0, 2, 4, ITERATIONS]
    validated = dict(report["validation_history"])
    assert report["validation_reduction_percent"] == validated[report["best_iteration"]]
    assert report["best_iteration"] in (ITERATIONS, max(validated, key=validated.__getitem__))
    assert {"policy.so", "policy.cpp", "policy.json", "manifest.json"} <= {p.name for p in (where / "policy").iterdir()}
    rows = list(csv.DictReader((where / "policy" / "tensorboard" / "training.csv").read_text().splitlines()))
    assert [float(row["reward_mean"]) for row in rows if row["reward_mean"]] == report["mean_rewards"]
    column = "validation_reduction_percent"
    assert [[int(row["iteration"]), float(row[column])] for row in rows if row[column]] == report["validation_history"]
    assert float(rows[-1]["minutes"]) == report["trained_s"] / 60
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(where / "root" / "tensorboard"))
    events.Reload()
    tags = set(events.Tags()["tensors"])
    assert {"reward_distribution/mean", "reward_distribution/percentile_50", "seconds/compile"} <= tags
    assert {f"losses/{name}" for name in LOSSES[how(report)]} == {tag for tag in tags if tag.startswith("losses/")}


@pytest.mark.tf
@pytest.mark.parametrize("inputs", ["ppo_of_flips", "es"], indirect=True, scope="session")
def test_same_seed_gives_the_same_rewards_from_relative_paths(inputs, first, tmp_path):
    """The others are compared in test_faults.py and test_regalloc.py, also with another hash seed."""
    relative = [os.path.relpath(value) if isinstance(value, Path) else value for value in inputs]
    again = train(relative, Path(os.path.relpath(tmp_path)), fresh=True)
    assert again["mean_rewards"] == first[1]["mean_rewards"]
    assert again["validation_history"] == first[1]["validation_history"]
    assert how(again) == how(first[1])


@pytest.mark.tf
@LEARNING_BY_DEFAULT
def test_training_ends_when_validations_do_not_improve(inputs, tmp_path):
    """With an infinite margin, all policies decide like the first."""
    limits = ["--validate-every", 1, "--patience", 2, "--iterations", 50]
    report = train([*inputs, *limits, "--gin-binding", "DqnParameters.margin=1e9"], tmp_path)
    percents = [percent for _, percent in report["validation_history"]]
    assert len(percents) == 1 + 2 + 1 and len(set(percents)) == 1, "the start, two in vain, and the final policy"
    assert (report["best_iteration"], report["iterations"]) == (0, report["validation_history"][-1][0])
    again = train([*inputs, *limits, "--gin-binding", "DqnParameters.margin=1e9"], tmp_path)
    assert again["validation_history"] == report["validation_history"], "the same command trains no further"


SOON = """
import runpy
from components.ppo import training_state
training_state.FORECAST_S = 0.01
runpy.run_module("components.ppo", run_name="__main__", alter_sys=True)
"""
"""A training that says what to expect when its first policy is validated, not after five minutes."""


@pytest.mark.tf
@LEARNING_BY_DEFAULT
def test_training_says_once_what_to_expect(inputs, tmp_path):
    where = ["--root-dir", tmp_path / "root", "--output", tmp_path / "policy"]
    arguments = [*inputs, *where, "--validate-every", 1, "--iterations", 4]
    command = [sys.executable, "-c", SOON, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (said,) = [line for line in done.stdout.splitlines() if "so far (" in line]
    assert "the training ends in about" in said and "95% interval" in said
    assert done.stdout.index(said) < done.stdout.index("training: 4/4")


@pytest.mark.tf
@LEARNING_BY_DEFAULT
def test_initial_entropy_is_checked_for_every_algorithm(inputs, tmp_path):
    arguments = [*inputs, "--gin-binding", "PpoParameters.initial_entropy='x'"]
    with pytest.raises(subprocess.CalledProcessError) as caught:
        step("ppo", *arguments, "--root-dir", tmp_path / "root", "--output", tmp_path / "policy")
    assert "PpoParameters.initial_entropy is 'x'" in caught.value.stderr and "Traceback" not in caught.value.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.tf
@LEARNING_BY_DEFAULT
def test_failing_module_is_quarantined_permanently(inputs, tmp_path):
    """It was sound when it was traced. With so few modules, those that are trained on also validate: seven in all."""
    corpus = load_corpus(shutil.copytree(inputs[inputs.index("--corpus") + 1], tmp_path / "corpus"))
    damaged = corpus.split("train")[1]
    damaged.cmd.write_bytes(damaged.cmd.read_bytes().replace(b"-triple\0x86_64", b"-triple\0nothing"))
    write_manifest(corpus.directory)
    options = [*inputs, "--corpus", corpus.directory, "--iterations", 2]
    with pytest.raises(subprocess.CalledProcessError) as caught:
        step("ppo", *options, "--root-dir", tmp_path / "refused", "--output", tmp_path / "policy")
    said = caught.value.stderr
    assert "1 of 7 modules do not compile (1 failed), more than the allowed fraction of 0.05" in said
    assert damaged.name in said and "Traceback" not in said and not (tmp_path / "policy").exists()
    options += ["--max-failed-fraction", 0.25]
    two, four = (train([*options, "--iterations", count], tmp_path) for count in (2, 4))
    assert [module["module"] for module in two["quarantine"]["modules"]] == [damaged.name]
    assert four["quarantine"] == two["quarantine"] and len(four["mean_rewards"]) == 4
    assert four["mean_rewards"][:2] == two["mean_rewards"]
