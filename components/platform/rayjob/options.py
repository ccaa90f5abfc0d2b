"""Options of the training step that configure a RayJob (`--workers rayjob`), and their parsers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import click

from components.platform.errors import UserError
from components.platform.launcher.images import CLUSTER_VARIABLE
from components.platform.rayjob.spec import GKE_SPOT, RayJobSpec
from components.platform.storage.options import skip_fetch
from components.platform.workers.factory import check_workers, rayjob_workers

_ELSEWHERE = {"name", "image", "entrypoint", "max_workers", "spot", "env", "run_id"}
SETTINGS: dict[str, Callable[[str], Any]] = {
    field.name: int if field.type == "int" else str
    for field in dataclasses.fields(RayJobSpec)
    if field.name not in _ELSEWHERE
}
"""Fields of a RayJobSpec that --ray-cluster-options may set -> parser of the value."""


def rayjob_options(command: Any) -> Any:
    """Add --ray-cluster-options, --spot-node-label and --cluster-image to a click command; each may be empty."""
    for option in (
        click.option(
            "--ray-cluster-options",
            envvar="MLGO_RAY_CLUSTER_OPTIONS",
            default="",
            show_default=False,
            metavar="NAME=VALUE,...",
            help=f"RayJob settings that override the defaults: {', '.join(SETTINGS)}.",
        ),
        click.option(
            "--spot-node-label",
            envvar="MLGO_SPOT_NODE_LABEL",
            default="",
            show_default=False,
            metavar="LABEL=VALUE",
            help=f"Label (and taint) of the nodes that a RayJob's workers run on; on GKE: {'='.join(GKE_SPOT)}.",
        ),
        click.option(
            "--cluster-image",
            envvar=CLUSTER_VARIABLE,
            default="",
            show_default=False,
            metavar="NAME@DIGEST",
            help=f"mlgo-cluster image of a RayJob, as `mlgo images push` wrote it.  [default: ${CLUSTER_VARIABLE}]",
        ),
    ):
        command = option(command)
    return command


def choose_workers(context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Check --workers (click callback); inputs of a RayJob stay in object storage."""
    check_workers(value)
    if rayjob_workers(value):
        skip_fetch(context, f"--workers {value} trains on other machines, which see object storage only")
    return value


def parse_spot(text: str) -> tuple[str, str] | None:
    """Return LABEL and VALUE, None for an empty text. UserError if it is malformed."""
    label, equals, value = text.partition("=")
    if text and not (label and equals and value):
        raise UserError(
            f"--spot-node-label {text!r} is not of the form LABEL=VALUE",
            f"on GKE: --spot-node-label {'='.join(GKE_SPOT)}",
        )
    return (label, value) if text else None


def parse_settings(text: str) -> dict[str, Any]:
    """Return fields of a RayJobSpec by name. UserError if a setting is unknown or not the integer that it must be."""
    settings: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _equals, value = part.partition("=")
        if name not in SETTINGS:
            raise UserError(
                f"--ray-cluster-options {part}: there is no setting {name!r}", f"settings: {', '.join(SETTINGS)}"
            )
        try:
            settings[name] = SETTINGS[name](value)
        except ValueError:
            raise UserError(
                f"--ray-cluster-options {part}: {value!r} is no whole number", f"for example {name}=4"
            ) from None
    return settings
