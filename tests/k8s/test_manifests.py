"""The manifests: valid by Kubernetes' own schema, nothing runs as root, each of them is in its kustomization."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from components.platform.launcher.notify import NOTIFY_VARIABLE
from pipelines.submit.kfp_package import NOTIFY_KEY
from tests.support.crd import FILES, check, needs_schemas

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
KUSTOMIZATIONS = sorted(K8S.rglob("kustomization.yaml"))
VERSION = "1.31"
"""The oldest Kubernetes that is still supported somewhere."""


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def parts(kustomization: Path) -> tuple[list[str], list[str]]:
    """The files that a kustomization names: (resources, patches)."""
    (document,) = documents(kustomization)
    return document.get("resources", []), [patch["path"] for patch in document.get("patches", ()) if "path" in patch]


MANIFESTS = sorted(
    path.parent / name for path in KUSTOMIZATIONS for name in parts(path)[0] if name.endswith((".yaml", ".yml"))
)


def name(path: Path) -> str:
    return path.relative_to(K8S).as_posix()


@pytest.mark.parametrize("path", MANIFESTS, ids=name)
def test_manifest_is_valid_for_kubernetes(path: Path) -> None:
    """Skips KubeRay's and GKE's kinds, which are not Kubernetes' own."""
    for document in documents(path):
        if not document["apiVersion"].startswith(("ray.io/", "networking.gke.io/")):
            kubernetes_validate.validate(document, VERSION, strict=True)


@needs_schemas
def test_manifest_is_valid_for_kuberay() -> None:
    """Checks documents before rendering; test_rendered.py checks the rendered ones."""
    resources = [document for path in MANIFESTS for document in documents(path) if document["kind"] in FILES]
    assert {document["kind"] for document in resources} == set(FILES)
    for document in resources:
        check(document)


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=name)
def test_kustomization_lists_existing_files(path: Path) -> None:
    (document,) = documents(path)
    resources, patches = parts(path)
    for resource in resources:
        assert (path.parent / resource).exists(), resource
    beside = {file.name for file in path.parent.glob("*.yaml")} - {"kustomization.yaml"}
    assert {resource for resource in resources if "/" not in resource} | set(patches) == beside
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


def test_no_container_runs_as_root_or_without_limits() -> None:
    templates = [pod for path in MANIFESTS for document in documents(path) for pod in pods(document)]
    assert len(templates) >= 4
    for pod in templates:
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True and context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert {"cpu", "memory"} <= set(container["resources"]["limits"])


def test_commands_in_manifests_exist() -> None:
    """The commands themselves parse the arguments of the CronJob and the RayJob."""
    from components.platform.rayjob.spec import ON_HEAD, TRAINER
    from components.ppo.__main__ import main
    from pipelines.cli.retrain import check

    (job,) = documents(K8S / "base" / "retrain-check.yaml")
    (pod,) = pods(job)
    (container,) = pod["containers"]
    assert container["command"] == ["mlgo"] and container["args"][:2] == ["retrain", "check"]
    check.make_context("check", list(container["args"][2:]))
    (ray_job,) = documents(K8S / "base" / "rayjob.yaml")
    words = ray_job["spec"]["entrypoint"].split()
    assert words[:4] == [*TRAINER, "--workers", ON_HEAD]
    options, rest, _order = main.make_parser(click.Context(main)).parse_args(words[2:])  # nothing is fetched yet
    assert not rest and {option.name for option in main.params if option.required} <= set(options)


def test_webhook_url_comes_from_an_optional_secret() -> None:
    (job,) = documents(K8S / "base" / "retrain-check.yaml")
    ((container,),) = [pod["containers"] for pod in pods(job)]
    (variable,) = [entry for entry in container["env"] if entry["name"] == NOTIFY_VARIABLE]
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "mlgo-notify", "key": NOTIFY_KEY, "optional": True}}
    assert "url=FILE" in (K8S / "base" / "retrain-check.yaml").read_text() and NOTIFY_KEY == "url"
