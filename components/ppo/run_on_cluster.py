"""Runs a training as a RayJob: the trainer runs on a Ray cluster's head with the same options; this step follows it.

This step downloads only the finished policy, because the launcher reports its metrics. All other
artifacts that the options name stay in object storage.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shlex
from pathlib import Path
from typing import Any

import click

from components.core.formats.policy import IMAGE_VARIABLE
from components.core.projects.option import unwrap_type
from components.platform.console import say
from components.platform.console.interrupts import continues_when_rerun
from components.platform.errors import UserError
from components.platform.launcher import mlflow
from components.platform.launcher.images import CLUSTER_VARIABLE
from components.platform.rayjob.kubernetes import ApiServer
from components.platform.rayjob.manifest import job_name
from components.platform.rayjob.options import parse_settings, parse_spot
from components.platform.rayjob.spec import NAMESPACE, ON_HEAD, TRAINER, RayJobSpec
from components.platform.rayjob.step_lease import LEASE_VARIABLE, RUN_VARIABLE, StepLease
from components.platform.rayjob.submit import end_rayjob, run_rayjob
from components.platform.storage.manifest import MANIFEST, manifest_digest
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.object_storage.gcs import EMULATOR_VARIABLE
from components.platform.storage.object_storage.remote import read_remote_manifest
from components.platform.storage.object_storage.s3 import ENDPOINT_VARIABLES, REGION_VARIABLES
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.options import ARTIFACT, FILE
from components.platform.storage.uri import ObjectUri, uri_of
from components.platform.workers.factory import rayjob_workers
from components.platform.workers.settings import CACHE_GB
from components.ppo.config import TrainingConfig

PASSED_ON = (EMULATOR_VARIABLE, "GOOGLE_CLOUD_PROJECT", *ENDPOINT_VARIABLES, *REGION_VARIABLES, CACHE_GB)
"""Environment variables of this step that are passed to every node of the cluster. Credentials are not: a node's
service account has them, or a Secret."""


def run_as_rayjob(
    context: click.Context, config: TrainingConfig, image: str, spot_node_label: str, ray_cluster_options: str
) -> None:
    """Run a command line as a RayJob, and delete that when it has succeeded; a failed one stays.

    The options were parsed without downloading what they name.

    Args:
        image, spot_node_label, ray_cluster_options: the options of these names (platform/rayjob/options.py).

    Raises:
        UserError: no image is given, an input does not exist, `run_rayjob` fails, or the RayJob left no policy.
    """
    if not image:
        raise UserError(
            f"--workers {config.workers}: no image for the nodes of the cluster is given",
            f"--cluster-image NAME@sha256:... or {CLUSTER_VARIABLE}; `mlgo images push` writes it to build/images.json",
        )
    server = ApiServer()
    entrypoint, inputs = trainer_command(context)
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | mlflow.open_settings()
    run_id = os.environ.get(RUN_VARIABLE, "")
    lease_uri = dataclasses.replace(_uri(config.output), path=f"{_uri(config.output).path}.step")
    if run_id:
        environment[LEASE_VARIABLE] = str(lease_uri)
    spec = RayJobSpec(
        run_id=run_id,
        name=job_name({"command": shlex.join(entrypoint), "image": image, **inputs}),
        image=image,
        entrypoint=entrypoint,
        max_workers=rayjob_workers(config.workers) or 0,
        spot=parse_spot(spot_node_label),
        env={**environment, IMAGE_VARIABLE: image},
        **{"namespace": NAMESPACE, **parse_settings(ray_cluster_options)},
    )
    with continues_when_rerun():
        run_rayjob(spec, server, lease=StepLease(lease_uri) if run_id else None)
    output = _uri(config.output)
    if not read_remote_manifest(output).version:
        raise UserError(
            f"RayJob {spec.namespace}/{spec.name} has succeeded, but there is no policy at {output} (no {MANIFEST})",
            "if the policy was deleted, also delete the RayJob, and run the same command again:"
            f" kubectl delete rayjob --namespace {spec.namespace} {spec.name}",
        )
    fetch(output, config.output)  # where the launcher looks for the output of a step
    try:
        end_rayjob(spec, server)
    except UserError as error:
        say(f"RayJob {spec.namespace}/{spec.name} stays, and counts towards the quota: {error.problem}")


def trainer_command(context: click.Context) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the trainer's command line with all options, presets resolved, and the digest of each input by URI.

    Raises:
        UserError: an input does not exist.
    """
    words: list[str] = []
    digests: dict[str, str] = {}
    for parameter in context.command.params:
        name, value = parameter.name or "", context.params.get(parameter.name or "")
        if name not in TrainingConfig.__dataclass_fields__ or name == "workers" or value is None:
            continue
        if isinstance(value, bool):
            words += parameter.opts[:1] if value else []
            continue
        for one in value if parameter.multiple else (value,):
            text = str(_uri(one)) if isinstance(one, Path) else str(one)
            words += [parameter.opts[0], text]
            kind = unwrap_type(parameter.type)
            if kind is ARTIFACT or kind is FILE:
                digests[text] = _digest(_uri(one), kind)
    return (*TRAINER, "--workers", ON_HEAD, *words), digests


def _digest(uri: ObjectUri, kind: Any) -> str:
    """Return the digest of an input's present content, which is part of a training's identity."""
    if kind is FILE:
        content, _version = store_of(uri).read(uri)
        if content is None:
            raise UserError(f"there is nothing at {uri}", "check the URI")
        return hashlib.sha256(content).hexdigest()
    remote = read_remote_manifest(uri)
    if not remote.version:
        raise UserError(
            f"{uri} is not a finished artifact: it has no {MANIFEST}",
            "check the URI; if the step that writes it was interrupted, run that step again",
        )
    return manifest_digest(remote.files)


def _uri(path: Path) -> ObjectUri:
    uri = uri_of(path)
    assert uri is not None, f"{path} is not a mirror"
    return uri
