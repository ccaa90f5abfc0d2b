"""KFP's ExecutorInput and ExecutorOutput."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from components.core.console import UserError
from components.core.launcher.executor import (
    confusion_matrix,
    numbers,
    outputs_at,
    parse_executor_input,
    write_executor_output,
)

KFP_PYTHON = Path(sys.prefix).with_name(f"{Path(sys.prefix).name}-pipelines") / "bin" / "python"


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


def test_confusion_matrix_is_that_of_kfp() -> None:
    matrix = {"categories": ["keep", "inline"], "rows": [[5, 1], [2, 9]]}
    script = (
        "import json, sys; from kfp import dsl; m = dsl.ClassificationMetrics(); d = json.loads(sys.argv[1]); "
        "m.log_confusion_matrix(d['categories'], d['rows']); print(json.dumps(m.metadata))"
    )
    done = subprocess.run([KFP_PYTHON, "-c", script, json.dumps(matrix)], capture_output=True, text=True, check=True)
    assert confusion_matrix(matrix) == json.loads(done.stdout)
    assert confusion_matrix(None) == {}


def test_outputs_are_found_by_their_uri() -> None:
    artifacts = {name: {"artifacts": [{"uri": uri}]} for name, uri in (("a", "gs://b/a"), ("b", "gs://b/b"))}
    assert outputs_at({"outputs": {"artifacts": artifacts}}, "gs://b/b") == ["b"]
    assert outputs_at({}, "gs://b/b") == []


def test_numbers_of_nested_documents_are_flattened() -> None:
    document = {"bytes": 7, "verdict": "better", "yes": True, "groups": {"unseen": {"percent": 1.5, "sizes": [1]}}}
    assert numbers(document) == {"bytes": 7.0, "groups.unseen.percent": 1.5}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"outputs": 3}'])
def test_invalid_executor_input_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--executor-input"):
        parse_executor_input(text)
