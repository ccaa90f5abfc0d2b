"""The PPO step as a RayJob: the same options, but the trainer runs on the head of a Ray cluster; this step follows it.

Nothing that the options name is downloaded here, except for the policy when it is there: what runs this step
(components.core.launcher) tells others about it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from pathlib import Path
from typing import Any

import click

from components.core.console import UserError
from components.core.formats.policy import IMAGE_VARIABLE
from components.core.launcher.images import CLUSTER_VARIABLE
from components.core.rayjob.kubernetes import ApiServer
from components.core.rayjob.manifest import job_name
from components.core.rayjob.options import parse_settings, parse_spot
from components.core.rayjob.spec import NAMESPACE, ON_HEAD, TRAINER, RayJobSpec
from components.core.rayjob.submit import run_rayjob
from components.core.storage.fetch import fetch
from components.core.storage.gcs import EMULATOR_VARIABLE, read_object
from components.core.storage.manifest import MANIFEST, manifest_digest
from components.core.storage.options import ARTIFACT, FILE
from components.core.storage.remote import read_remote_manifest
from components.core.storage.uri import GsUri, uri_of
from components.core.workers.factory import rayjob_workers
from components.core.workers.settings import CACHE_GB
from components.ppo.config import PpoConfig

PASSED_ON = (EMULATOR_VARIABLE, "GOOGLE_CLOUD_PROJECT", CACHE_GB)
"""Variables of this step's environment that every node of the cluster gets, too."""


def run_elsewhere(
    context: click.Context, config: PpoConfig, image: str, spot_node_label: str, ray_cluster_options: str
) -> None:
    """Runs the RayJob of a command line that was parsed with its places left in object storage.

    Args:
        context: of the command `mlgo ppo`. config: what was parsed.
        image, spot_node_label, ray_cluster_options: the options of those names (rayjob_options).

    Raises:
        UserError: no image, an input that is not there, whatever `run_rayjob` raises, or no policy after it.
    """
    if not image:
        raise UserError(
            f"--workers {config.workers}: nothing names the image of the cluster's nodes",
            f"--cluster-image NAME@sha256:... or {CLUSTER_VARIABLE}; `mlgo images push` writes it to build/images.json",
        )
    server = ApiServer()
    entrypoint, inputs = trainer_command(context)
    here = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    spec = RayJobSpec(
        name=job_name({"command": shlex.join(entrypoint), "image": image, **inputs}),
        image=image,
        entrypoint=entrypoint,
        max_workers=rayjob_workers(config.workers) or 0,
        spot=parse_spot(spot_node_label),
        env={**here, IMAGE_VARIABLE: image},
        **{"namespace": NAMESPACE, **parse_settings(ray_cluster_options)},
    )
    run_rayjob(spec, server)
    output = _uri(config.output)
    if not read_remote_manifest(output).generation:
        raise UserError(
            f"RayJob {spec.namespace}/{spec.name} has succeeded, but there is no policy at {output} (no {MANIFEST})",
            "if it was deleted meanwhile, delete the RayJob, too, and run the same command again:"
            f" kubectl delete rayjob --namespace {spec.namespace} {spec.name}",
        )
    fetch(output)


def trainer_command(context: click.Context) -> tuple[tuple[str, ...], dict[str, str]]:
    """The trainer's command line with every option that it takes, presets resolved; and URI -> digest of each input.

    Raises:
        UserError: an input is not there.
    """
    words: list[str] = []
    digests: dict[str, str] = {}
    for parameter in context.command.params:
        name, value = parameter.name or "", context.params.get(parameter.name or "")
        if name not in PpoConfig.__dataclass_fields__ or name == "workers" or value is None:
            continue
        if isinstance(value, bool):
            words += parameter.opts[:1] if value else []
            continue
        for one in value if parameter.multiple else (value,):
            text = str(_uri(one)) if isinstance(one, Path) else str(one)
            words += [parameter.opts[0], text]
            if parameter.type is ARTIFACT or parameter.type is FILE:
                digests[text] = _digest(_uri(one), parameter.type)
    return (*TRAINER, "--workers", ON_HEAD, *words), digests


def _digest(uri: GsUri, kind: Any) -> str:
    """Of an input's content, as it is now: what it is made from is part of what a training is."""
    if kind is FILE:
        content, _generation = read_object(uri)
        if content is None:
            raise UserError(f"there is nothing at {uri}", "check the URI")
        return hashlib.sha256(content).hexdigest()
    remote = read_remote_manifest(uri)
    if not remote.generation:
        raise UserError(
            f"{uri} is no finished artifact: it has no {MANIFEST}",
            "check the URI; if the step that makes it was interrupted, run that step again",
        )
    return manifest_digest(remote.files)


def _uri(path: Path) -> GsUri:
    uri = uri_of(path)
    assert uri is not None, f"{path} is no mirror"
    return uri
