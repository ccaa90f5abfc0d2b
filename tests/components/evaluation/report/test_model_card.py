"""Tests of what the model card says of a policy."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from components.core.formats.corpus import load_corpus
from components.core.formats.policy import load_policy_info, write_policy_info
from components.core.storage import write_manifest
from components.evaluation.measurements import Measurements
from components.evaluation.metrics import summarize
from components.evaluation.report.model_card import card_markdown, model_card


def test_optional_features_are_listed_with_their_values(
    measured: Measurements, corpus_directory: Path, never: Path, tmp_path: Path
) -> None:
    policy, corpus, metrics = tmp_path / "policy", load_corpus(corpus_directory), summarize(measured, 0.3, 1)
    assert "Assumed" not in card_markdown(model_card(metrics, never, corpus, []), [])
    shutil.copytree(never, policy)
    info = load_policy_info(policy)
    name = info.features[0].name
    write_policy_info(policy, replace(info, optional_features={name: 3}))
    write_manifest(policy)
    card = model_card(metrics, policy, corpus, [])
    assert card.optional_features == {name: 3}
    assert f"- Assumed where a compiler lacks the feature: `{name}` 3\n" in card_markdown(card, [])
