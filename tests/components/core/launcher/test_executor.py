"""KFP's ExecutorInput and ExecutorOutput."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.core.console import UserError
from components.core.launcher.executor import numbers, parse_executor_input, write_executor_output


def test_every_output_is_reported_with_its_metadata(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "executor_output.json"
    artifact = {"name": "vocab", "uri": "gs://b/vocab", "type": {"schemaTitle": "system.Artifact"}}
    outputs = {"artifacts": {n: {"artifacts": [{**artifact, "name": n}]} for n in ("vocab", "metrics")}}
    write_executor_output({"outputs": {**outputs, "outputFile": str(place)}}, {"metrics": {"a.b": 1.0}})
    written = json.loads(place.read_text())["artifacts"]
    assert written["vocab"] == {"artifacts": [{**artifact, "metadata": {}}]}
    assert written["metrics"]["artifacts"][0]["metadata"] == {"a.b": 1.0}
    assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_nothing_is_written_without_an_output_file() -> None:
    write_executor_output({}, {})


def test_numbers_of_nested_documents_are_flattened() -> None:
    document = {"bytes": 7, "verdict": "better", "yes": True, "groups": {"unseen": {"percent": 1.5, "sizes": [1]}}}
    assert numbers(document) == {"bytes": 7.0, "groups.unseen.percent": 1.5}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"outputs": 3}'])
def test_invalid_executor_input_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--executor-input"):
        parse_executor_input(text)
