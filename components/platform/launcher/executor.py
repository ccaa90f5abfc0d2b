"""KFP's ExecutorInput and ExecutorOutput (api/v2alpha1/pipeline_spec.proto), the parts that steps use.

KFP records those outputs of a container component that are named in the JSON file `outputs.outputFile`:

    {"artifacts": {"vocab": {"artifacts": [{"name", "uri", "type", "metadata": {}}]}}}
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from components.platform.storage import read_manifest
from components.platform.storage.input_files import expect_shape, parse_json, read_json, typed
from components.platform.storage.manifest import manifest_digest
from components.platform.storage.output_files import replace_text


class _Artifact(Struct):
    uri: str = ""


class _Artifacts(Struct):
    artifacts: list[_Artifact] = []


class _Ports(Struct, frozen=True, rename={"output_file": "outputFile"}):
    artifacts: dict[str, _Artifacts] = {}
    output_file: str = ""


class _ExecutorInput(Struct):
    """An ExecutorInput, the keys that the launcher reads."""

    inputs: _Ports = _Ports()
    outputs: _Ports = _Ports()


def parse_executor_input(text: str) -> dict[str, Any]:
    """Parse the ExecutorInput that replaces the placeholder {{$}}. UserError if it is invalid."""
    remedy = "the launcher is for pipelines; to run a step directly: mlgo STEP --help"
    document = parse_json(text, "--executor-input", remedy)
    typed(document, _ExecutorInput, "--executor-input", "an ExecutorInput of KFP", remedy)
    return dict(document)  # with the keys that only KFP reads


def write_executor_output(executor_input: Mapping[str, Any], metadata: Mapping[str, Mapping[str, Any]]) -> None:
    """Report every output artifact as made.

    Args:
        metadata: artifact name -> what KFP stores and shows with it.
    """
    outputs = executor_input.get("outputs", {})
    output_file = outputs.get("outputFile")
    if not output_file:
        return
    artifacts = {}
    for name, listed in outputs.get("artifacts", {}).items():
        finite_metadata = _finite(metadata.get(name, {}))
        made = [{**artifact, "metadata": finite_metadata} for artifact in listed.get("artifacts", [])]
        artifacts[name] = {"artifacts": made}
    path = Path(output_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps({"artifacts": artifacts}, allow_nan=False))


def _finite(value: Any) -> Any:
    """Return a copy of a JSON value without numbers that are not finite: for one, KFP would fail the finished step."""
    if isinstance(value, Mapping):
        copies = {key: _finite(item) for key, item in value.items()}
        return {key: item for key, item in copies.items() if item is not None}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def find_outputs_at(executor_input: Mapping[str, Any], uri: str) -> list[str]:
    """Return the names of the output artifacts whose URI is `uri`."""
    listed = executor_input.get("outputs", {}).get("artifacts", {})
    return [name for name, made in listed.items() if any(a.get("uri") == uri for a in made.get("artifacts", []))]


def describe_lineage(directory: Path) -> dict[str, Any]:
    """Return what identifies the artifact in `directory` wherever it is copied, and the code that made it.

    KFP itself records which artifacts a step read. A policy also has the digests of policy.json, a compiler its LLVM
    version and the digests of the policies that it embeds, an evaluation the digest of its policy and the LLVM version.
    """
    files = read_manifest(directory).files
    described: dict[str, Any] = {
        "digest": manifest_digest(files),
        "files": len(files),
        "bytes": sum(entry.size_bytes for entry in files),
        "git_commit": os.environ.get("MLGO_GIT_COMMIT", ""),
    }
    for file, describe in _DESCRIPTIONS.items():
        path = directory / file
        if path.is_file():
            document = read_json(path, "see the step's log")
            with expect_shape(path, "the description of an artifact", "see the step's log"):
                described |= describe(document)
    return {name: value for name, value in described.items() if value not in ("", None)}


def _describe_policy(document: Mapping[str, Any]) -> dict[str, Any]:
    digests = ("corpus_digest", "trace_digest", "toolchain_digest")
    return {name: document.get(name, "") for name in ("problem", "trained_by", "llvm_version", *digests)}


def _describe_compiler(document: Mapping[str, Any]) -> dict[str, Any]:
    policies = document["built"].get("policies", {})
    described = {name: document[name] for name in ("mode", "llvm_version", "triple")}
    return described | {f"{problem}_policy_digest": digest for problem, digest in policies.items()}


def _describe_evaluation(document: Any) -> dict[str, Any]:
    """Return nothing for another file of this name."""
    inputs = document.get("inputs") if isinstance(document, Mapping) else None
    if not isinstance(inputs, Mapping):
        return {}
    described = {name: inputs.get(name) for name in ("policy_digest", "llvm_version")}
    return described | {name: document.get(name) for name in ("problem", "verdict")}


_DESCRIPTIONS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "policy.json": _describe_policy,
    "toolchain.json": _describe_compiler,
    "metrics.json": _describe_evaluation,
}
"""File of an artifact -> what KFP shows of it. The launcher reads them as JSON, because it knows no domain."""


def confusion_matrix(document: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata of a system.ClassificationMetrics artifact, as kfp.dsl.ClassificationMetrics logs it.

    Args:
        document: {"categories": [names], "rows": [[numbers of each row's category]]}; None for no matrix.
    """
    if document is None:
        return {}
    names = [{"displayName": name} for name in document["categories"]]
    return {"confusionMatrix": {"annotationSpecs": names, "rows": [{"row": row} for row in document["rows"]]}}


def select_numbers(document: Mapping[str, Any], keys: Sequence[str]) -> dict[str, float]:
    """Return the numbers at `keys` that a JSON object has, as a system.Metrics artifact shows them.

    Args:
        keys: dotted paths, of a number or of an object whose numbers are all meant. Empty: all numbers.
    """
    by_path = flatten_numbers(document)
    if not keys:
        return by_path
    return {name: value for key in keys for name, value in by_path.items() if name == key or name.startswith(f"{key}.")}


def flatten_numbers(document: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers of a JSON object, nested ones under dotted paths, as a system.Metrics artifact shows them."""
    by_path: dict[str, float] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            by_path |= flatten_numbers(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            by_path[f"{prefix}{key}"] = float(value)
    return by_path
