"""The manifests: valid by Kubernetes' own schema, nothing runs as root, each resource is in its kustomization."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
MANIFESTS = sorted(path for path in K8S.rglob("*.yaml") if path.name != "kustomization.yaml")
KUSTOMIZATIONS = sorted(K8S.rglob("kustomization.yaml"))
VERSION = "1.31"
"""The oldest Kubernetes that is still supported somewhere."""


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def name(path: Path) -> str:
    return path.relative_to(K8S).as_posix()


@pytest.mark.parametrize("path", MANIFESTS, ids=name)
def test_kubernetes_takes_it(path: Path) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, VERSION, strict=True)


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=name)
def test_a_kustomization_names_what_is_there(path: Path) -> None:
    (document,) = documents(path)
    for resource in document["resources"]:
        assert (path.parent / resource).exists(), resource
    if path.parent.name == "base":
        beside = {file.name for file in path.parent.glob("*.yaml")} - {"kustomization.yaml"}
        assert set(document["resources"]) == beside
    for image in document.get("images", ()):
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", image["digest"]) and "newTag" not in image


def pods(document: Any) -> Iterator[dict[str, Any]]:
    """Every pod's spec in a document, at whatever depth."""
    if isinstance(document, dict):
        if "containers" in document:
            yield document
        for value in document.values():
            yield from pods(value)
    elif isinstance(document, list):
        for value in document:
            yield from pods(value)


def test_nothing_runs_as_root_or_without_limits() -> None:
    found = [pod for path in MANIFESTS for document in documents(path) for pod in pods(document)]
    assert found
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True and context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert {"cpu", "memory"} <= set(container["resources"]["limits"])


def test_commands_in_manifests_are_commands_of_ours() -> None:
    """What the CronJob calls is parsed by the command itself."""
    from pipelines.retrain_cli import check

    (job,) = documents(K8S / "base" / "retrain-check.yaml")
    (pod,) = pods(job)
    (container,) = pod["containers"]
    assert container["command"] == ["mlgo"] and container["args"][:2] == ["retrain", "check"]
    check.make_context("check", list(container["args"][2:]))
