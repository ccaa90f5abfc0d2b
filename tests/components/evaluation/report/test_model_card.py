"""Tests of what the model card says of a policy."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

from components.core.formats.corpus import load_corpus
from components.core.formats.policy import load_policy_info, write_policy_info
from components.evaluation.measurements import Measurements
from components.evaluation.metrics import summarize
from components.evaluation.metrics_types import Inputs
from components.evaluation.report.model_card import card_markdown, model_card
from components.platform.storage import write_manifest


def test_optional_features_are_listed_with_their_values(
    measured: Measurements, corpus_directory: Path, never: Path, tmp_path: Path
) -> None:
    policy, corpus, metrics = tmp_path / "policy", load_corpus(corpus_directory), summarize(measured, 0.3)
    assert "Assumed" not in card_markdown(model_card(metrics, never, corpus, []), [])
    shutil.copytree(never, policy)
    info = load_policy_info(policy)
    name = info.features[0].name
    write_policy_info(policy, replace(info, optional_features={name: 3}))
    write_manifest(policy)
    card = model_card(metrics, policy, corpus, [])
    assert card.optional_features == {name: 3}
    assert f"`{name}` 3" in card_markdown(card, [])


def test_each_project_has_the_number_of_modules_that_its_reduction_is_of(
    measured: Measurements, corpus_directory: Path, never: Path
) -> None:
    """The corpus has more modules of a project than were held out and measured."""
    metrics = summarize(measured, 0.3)
    card = card_markdown(model_card(metrics, never, load_corpus(corpus_directory), []), [])
    rows = [line.strip("| ").split(" | ") for line in card.splitlines() if line.startswith("| ")]
    start = rows.index(["project", "modules", "held-out and measured", "their text"])
    shown = {row[0]: int(row[2]) for row in rows[start + 1 :] if len(row) == 4 and row[2].isdigit()}
    counted = Counter(measured.projects)
    assert counted and all(count == counted.get(name, 0) for name, count in shown.items())
    assert sum(shown.values()) == sum(counted[name] for name in shown)


def test_training_of_an_earlier_policy_is_not_that_of_the_run(
    measured: Measurements, corpus_directory: Path, never: Path, tmp_path: Path
) -> None:
    policy, corpus, metrics = tmp_path / "policy", load_corpus(corpus_directory), summarize(measured, 0.3)
    shutil.copytree(never, policy)
    figures = {"trained_s": 3000.0, "iterations": 108.0, "best_iteration": 66.0}
    write_policy_info(policy, replace(load_policy_info(policy), metrics=figures))
    (policy / "report.json").write_text('{"processors": 2}')
    write_manifest(policy)

    def line() -> str:
        lines = card_markdown(model_card(metrics, policy, corpus, []), []).splitlines()
        return next(line for line in lines if line.startswith("- Training"))

    assert "108 iterations" in line()
    (policy / "report.json").unlink()
    write_manifest(policy)
    metrics.inputs = Inputs(policy_role="start", warmstart_trained_by="ppo")
    assert "started from, before" in line() and line().endswith(", the best was 66")
    metrics.inputs.policy_pretrained = "pretrained"
    assert line().startswith("- Training of the pretrained policy, before")


def test_first_sentence_names_the_algorithm(
    measured: Measurements, corpus_directory: Path, never: Path, tmp_path: Path
) -> None:
    policy, corpus, metrics = tmp_path / "policy", load_corpus(corpus_directory), summarize(measured, 0.3)
    shutil.copytree(never, policy)
    (policy / "report.json").write_text(json.dumps({"hyperparameters": {"step": {"algorithm": "dqn"}}}))
    write_manifest(policy)
    lines = card_markdown(model_card(metrics, policy, corpus, []), []).splitlines()
    assert "DQN" in lines[2]
    (policy / "report.json").unlink()
    write_manifest(policy)
    assert "Trained by" not in card_markdown(model_card(metrics, policy, corpus, []), [])
