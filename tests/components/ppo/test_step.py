"""What a training publishes at its end."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.platform.storage import publish
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.shared_state.root_lease import LeaseLost
from components.platform.storage.uri import ObjectUri, mirror
from components.ppo import step
from components.ppo.config import TrainingConfig

pytestmark = pytest.mark.tf


def write(directory: Path, name: str) -> None:
    (directory / "policy.json").write_text(json.dumps(name))


@pytest.mark.parametrize("taken_over", [False, True])
def test_training_that_lost_its_lease_does_not_replace_its_successors_policy(
    gs_uri: ObjectUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken_over: bool
) -> None:
    """It is stopped when it begins to publish; its successor trains to the end and publishes meanwhile."""
    output = mirror(gs_uri / "policy")

    def renew() -> None:
        with publish(output, "policy") as directory:
            write(directory, "successor's")
        if taken_over:
            raise LeaseLost("another training has taken over", "let it continue")

    state: Any = SimpleNamespace(iteration=1, trained_s=1.0, best_iteration=1, best_percent=1.0, history=[], rewards=[])
    trainer: Any = SimpleNamespace(
        quarantine=SimpleNamespace(to_json=dict),
        clang=None,
        objective=SimpleNamespace(labels=SimpleNamespace(comparative=["smaller", "larger"])),
    )
    config: Any = SimpleNamespace(output=output, root_dir=tmp_path, warmstart=None)
    for name in step._REPORTED:
        setattr(config, name, getattr(TrainingConfig, name, None))
    monkeypatch.setattr(step, "export_policy", lambda _policy, directory, *_: write(directory, "own"))
    monkeypatch.setattr(step, "_policy_info", lambda *_: None)
    monkeypatch.setattr(step, "read_initial_entropy", lambda: 0.0)
    trained: Any = SimpleNamespace(policy=None, state=state)
    lease: Any = SimpleNamespace(update=renew)
    if taken_over:
        with pytest.raises(LeaseLost):
            step._publish(config, trainer, trained, lease)
    else:
        step._publish(config, trainer, trained, lease)
    assert json.loads((fetch(gs_uri / "policy", tmp_path / "read") / "policy.json").read_text()) == "successor's"
