"""Checks of the bucket and the images that a run on a cluster uses, as far as this machine can tell."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.platform.errors import UserError
from components.platform.rayjob.spec import NAMESPACE
from components.platform.storage import discard, publish
from components.platform.storage.uri import USAGE, mirror, parse_location
from pipelines.cluster.findings import Finding, missing, ok, unknown
from pipelines.images import Image, docker_client
from pipelines.parameters.on_server import MINIO, check_cloud_root
from pipelines.submit.kfp_client import KfpAddress, KfpClient
from pipelines.submit.polling import NoAnswer

_FROM_HERE = "checked with this machine's credentials, not with those of the pods"


def check_bucket(pipeline_root: str) -> Finding:
    """Publish a small artifact below `pipeline_root`, or an artifact root, read it, and remove it.

    Raises:
        UserError: `pipeline_root` is not a place in object storage.
    """
    from components.platform.storage.object_storage.fetch import fetch
    from components.platform.storage.object_storage.object_store import StorageError

    if pipeline_root.startswith(f"{MINIO}://"):
        check_cloud_root(pipeline_root, vertex=False)
        return unknown(
            f"{pipeline_root}: only Kubeflow Pipelines has the credentials",
            "start a pipeline that writes an artifact; or let steps write themselves, with --artifact-root",
        )
    root = parse_location(pipeline_root)
    if isinstance(root, Path):
        raise UserError(f"--pipeline-root {pipeline_root} is on this machine", f"pass {USAGE}")
    uri = root / f"mlgo-check-{secrets.token_hex(6)}"
    try:
        with publish(mirror(uri), "test of a bucket") as directory:
            (directory / "probe").write_text("mlgo cluster check\n")
        with tempfile.TemporaryDirectory() as work:
            fetch(uri, Path(work, "probe"))
        discard(mirror(uri))
    except StorageError as error:
        return unknown(f"{pipeline_root} cannot be tried: {error.problem} ({_FROM_HERE})", error.remedy)
    except UserError as error:
        return missing(f"{pipeline_root} cannot be used: {error.problem}", error.remedy)
    return ok(f"{pipeline_root} can be written, read and emptied ({_FROM_HERE})")


def check_images(images: Mapping[str, Image], names: tuple[str, ...]) -> list[Finding]:
    """Check that each of the images `names` is built, pushed, and can be pulled."""
    findings = []
    pushed = []
    for name in names:
        if name not in images:
            findings.append(missing(f"the image {name} is not built", "mlgo images build --all && mlgo images push"))
        elif "@sha256:" not in images[name].reference:
            remedy = "mlgo images build --all --registry HOST/PROJECT/REPOSITORY && mlgo images push"
            findings.append(missing(f"the image {images[name].tag} is not in a registry", remedy))
        else:
            pushed.append(images[name].reference)
    if not pushed:
        return findings
    try:
        with docker_client() as docker:
            findings += [_check_pull(docker, reference) for reference in pushed]
    except UserError:  # docker's daemon does not answer
        remedy = "start docker, or try it in the cluster: kubectl run pull --image REFERENCE --restart Never"
        findings += [unknown(f"{reference} is not looked up: no docker answers here", remedy) for reference in pushed]
    return findings


def check_kfp(server: KfpAddress, namespace: str) -> tuple[list[Finding], tuple[int, int] | None]:
    """Check whether the pipeline can run on a server; also return the server's major and minor version."""
    try:
        health = KfpClient(server).require_usable()
    except NoAnswer as error:
        return [unknown(error.problem, error.remedy)], None
    except UserError as error:
        return [missing(error.problem, error.remedy)], None
    findings = [ok(f"Kubeflow Pipelines {health.version or 'of a version that it does not tell'} at {server.host}")]
    if health.multi_user is False and namespace == NAMESPACE:
        problem = f"KFP at {server.host} has one user: it runs steps in its own namespace, not in {namespace}"
        remedy = "check that one: --namespace kubeflow --service-account pipeline-runner"
        findings.append(missing(problem, remedy))
    return findings, health.numbers


def _check_pull(docker: Any, reference: str) -> Finding:
    from docker.errors import APIError

    try:
        docker.images.get_registry_data(reference)
    except APIError as error:
        if error.status_code in (401, 403):
            return unknown(f"{reference}: the registry denies access ({_FROM_HERE})", "docker login there")
        return missing(
            f"{reference} cannot be pulled: {error.explanation}",
            "push it again, and give the cluster's nodes the right to pull from that registry",
        )
    return ok(f"{reference} can be pulled ({_FROM_HERE})")
