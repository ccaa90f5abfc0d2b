"""Tests of what steps read of the state of retraining, which `mlgo retrain` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.formats.deployment import DeployedPolicy, Deployment, read_deployment
from components.platform.errors import UserError
from components.platform.storage.uri import ObjectUri
from pipelines.retrain.state import Deployed, load_state, save_state

DEPLOYED = Deployed(
    "gs://b/policy", "d" * 64, "inlining", "19.1.7", ("a",), {"m": "x"}, 4.0, (3.0, 5.0), 0.0, regressed=("m1", "m2")
)


def test_written_state_is_read(any_uri: ObjectUri) -> None:
    location = f"{any_uri}/state.json"
    assert read_deployment(location) == Deployment()
    save_state(location, load_state(location))
    assert read_deployment(location) == Deployment()
    save_state(location, load_state(location).promoted(DEPLOYED))
    assert read_deployment(location) == Deployment(
        DeployedPolicy("gs://b/policy", "d" * 64, "inlining", "19.1.7"), ("m1", "m2")
    )


@pytest.mark.parametrize("text", ['{"deployed": 3}', '{"deployed": {"policy": "p"}}', '{"regressed": [1]}', "[]", "x"])
def test_other_document_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(UserError, match=r"state\.json"):
        read_deployment(str(tmp_path / "state.json"))
