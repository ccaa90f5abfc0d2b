"""Judges KubeRay's documents as an API server with its CRDs does: defaults, then the schema; unknown fields are faults.

What an API server does besides and this does not: the CEL rules (x-kubernetes-validations; those of KubeRay are about
deletion strategies and about who manages the object), and the rules of ObjectMeta but for the few fields we write.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, FormatChecker, ValidationError
from jsonschema.validators import extend

SCHEMAS = Path(__file__).parents[3] / "shared" / "schemas"
FILES = {"RayCluster": "ray.io_rayclusters.yaml", "RayJob": "ray.io_rayjobs.yaml"}
needs_schemas = pytest.mark.skipif(not SCHEMAS.is_dir(), reason=f"KubeRay's CRDs are not there: {SCHEMAS}")

_METADATA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 253, "pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"},
        "namespace": {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
        "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
_FORMATS = FormatChecker(())


@_FORMATS.checks("int32")
def _is_int32(value: Any) -> bool:
    return not isinstance(value, int) or -(2**31) <= value < 2**31


@_FORMATS.checks("int64")
def _is_int64(value: Any) -> bool:
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def _unique_keys(_validator: Any, keys: list[str], value: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, list):
        identities = [tuple(item.get(key) for key in keys) for item in value if isinstance(item, dict)]
        if len(identities) != len(set(identities)):
            yield ValidationError(f"two items with the same {', '.join(keys)}")


_Validator = extend(Draft7Validator, {"x-kubernetes-list-map-keys": _unique_keys})


class Invalid(Exception):
    """The API server's message, a line for each fault."""


def check(document: dict[str, Any], directory: Path = SCHEMAS) -> dict[str, Any]:
    """Return the document with its defaults, as the API server stores it. Invalid if the server refuses it."""
    kind = str(document.get("kind"))
    if document.get("apiVersion") != "ray.io/v1" or kind not in FILES:
        raise Invalid(f"no kind {kind} of {document.get('apiVersion')}")
    schema = _schema(directory / FILES[kind])
    stored: dict[str, Any] = _with_defaults(document, schema)
    faults = sorted(_Validator(schema, format_checker=_FORMATS).iter_errors(stored), key=lambda fault: fault.json_path)
    if faults:
        raise Invalid("\n".join(f"{fault.json_path}: {fault.message[:300]}" for fault in faults[:10]))
    return stored


@cache
def _schema(path: Path) -> dict[str, Any]:
    with path.open() as file:
        definition = yaml.load(file, yaml.CSafeLoader)
    (version,) = [version for version in definition["spec"]["versions"] if version["name"] == "v1"]
    schema: dict[str, Any] = _strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = _strict(_METADATA)
    schema["required"] = [*schema.get("required", ()), "metadata", "spec"]
    return schema


def _strict(schema: Any) -> Any:
    """The schema with every object closed that is not open by its own word."""
    if not isinstance(schema, dict):
        return schema
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {name: _strict(inner) for name, inner in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in schema:
            closed[key] = _strict(schema[key])
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if schema.get("type") == "object" and not is_open:
        closed["additionalProperties"] = False
    return closed


def _with_defaults(value: Any, schema: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        filled = {
            name: copy.deepcopy(inner["default"])
            for name, inner in properties.items()
            if "default" in inner and name not in value
        }
        for name, item in value.items():
            inner = properties.get(name, others if isinstance(others, dict) else {})
            filled[name] = _with_defaults(item, inner)
        return filled
    if isinstance(value, list):
        return [_with_defaults(item, schema.get("items", {})) for item in value]
    return value
