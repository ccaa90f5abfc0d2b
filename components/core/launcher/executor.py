"""KFP's ExecutorInput and ExecutorOutput (api/v2alpha1/pipeline_spec.proto), the parts that steps use.

KFP records those outputs of a container component that are named in the JSON file `outputs.outputFile`:

    {"artifacts": {"vocab": {"artifacts": [{"name", "uri", "type", "metadata": {}}]}}}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.core.storage.input_files import expect_shape, parse_json


def parse_executor_input(text: str) -> dict[str, Any]:
    """Parse the ExecutorInput that replaces the placeholder {{$}}. UserError if it is invalid."""
    remedy = "the launcher is for pipelines; to run a step directly: mlgo STEP --help"
    document = parse_json(text, "--executor-input", remedy)
    with expect_shape("--executor-input", "an ExecutorInput of KFP", remedy):
        inputs, outputs = document.get("inputs", {}), document.get("outputs", {})
        if not isinstance(outputs.get("outputFile", ""), str):
            raise ValueError("outputFile is not a string")
        for listed in (*inputs.get("artifacts", {}).values(), *outputs.get("artifacts", {}).values()):
            for artifact in listed.get("artifacts", []):
                if not isinstance(artifact, dict) or not isinstance(artifact.get("uri", ""), str):
                    raise ValueError("an artifact is not an object with a URI")
    return dict(document)


def write_executor_output(executor_input: Mapping[str, Any], metadata: Mapping[str, Mapping[str, Any]]) -> None:
    """Report every output artifact as made.

    Args:
        metadata: artifact name -> what KFP stores and shows with it.
    """
    outputs = executor_input.get("outputs", {})
    place = outputs.get("outputFile")
    if not place:
        return
    artifacts = {}
    for name, listed in outputs.get("artifacts", {}).items():
        made = [{**artifact, "metadata": dict(metadata.get(name, {}))} for artifact in listed.get("artifacts", [])]
        artifacts[name] = {"artifacts": made}
    path = Path(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(json.dumps({"artifacts": artifacts}), encoding="utf-8")
    os.replace(fresh, path)


def numbers(document: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers of a JSON object, nested ones under dotted paths, as a system.Metrics artifact shows them."""
    found: dict[str, float] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            found |= numbers(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{prefix}{key}"] = float(value)
    return found
