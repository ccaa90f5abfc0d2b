"""Options of the PPO step that say what a RayJob is made of (`--workers rayjob`), and what is read off them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import click

from components.core.console import UserError
from components.core.launcher.images import CLUSTER_VARIABLE
from components.core.rayjob.spec import GKE_SPOT, RayJobSpec
from components.core.storage.options import leave_in_storage
from components.core.workers.factory import check_workers, rayjob_workers

_ELSEWHERE = {"name", "image", "entrypoint", "max_workers", "spot", "env"}
SETTINGS: dict[str, Callable[[str], Any]] = {
    field.name: int if field.type == "int" else str
    for field in dataclasses.fields(RayJobSpec)
    if field.name not in _ELSEWHERE
}
"""Fields of a RayJobSpec that --ray-cluster-options may set -> what makes a value of text."""


def RAYJOB_OPTIONS(command: Any) -> Any:
    """Adds the options `cluster_image`, `spot` and `cluster` to a click command; each may be empty."""
    for option in (
        click.option(
            "--ray-cluster-options",
            envvar="MLGO_RAY_CLUSTER_OPTIONS",
            default="",
            metavar="NAME=VALUE,...",
            help=f"Of a RayJob, where the defaults do not fit: {', '.join(SETTINGS)}.",
        ),
        click.option(
            "--spot-node-label",
            envvar="MLGO_SPOT_NODE_LABEL",
            default="",
            metavar="LABEL=VALUE",
            help=f"Of a RayJob: label (and taint) of the nodes that workers run on; GKE's: {'='.join(GKE_SPOT)}.",
        ),
        click.option(
            "--cluster-image",
            envvar=CLUSTER_VARIABLE,
            default="",
            metavar="NAME@DIGEST",
            help=f"Of a RayJob: mlgo-cluster, as `mlgo images push` left it.  [default: ${CLUSTER_VARIABLE}]",
        ),
    ):
        command = option(command)
    return command


def choose_workers(context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Callback of --workers. What a RayJob is to read is not downloaded here."""
    check_workers(value)
    if rayjob_workers(value):
        leave_in_storage(context, f"--workers {value} trains on other machines, which see object storage only")
    return value


def parse_spot(text: str) -> tuple[str, str] | None:
    """LABEL and VALUE; None for no text. UserError for anything else."""
    label, equals, value = text.partition("=")
    if text and not (label and equals and value):
        raise UserError(
            f"--spot-node-label {text!r} is not of the form LABEL=VALUE",
            f"on GKE: --spot-node-label {'='.join(GKE_SPOT)}",
        )
    return (label, value) if text else None


def parse_settings(text: str) -> dict[str, Any]:
    """Fields of a RayJobSpec by name. UserError: there is no such setting, or no whole number where one must be."""
    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _equals, value = part.partition("=")
        if name not in SETTINGS:
            raise UserError(
                f"--ray-cluster-options {part}: there is no setting {name!r}", f"settings: {', '.join(SETTINGS)}"
            )
        try:
            found[name] = SETTINGS[name](value)
        except ValueError:
            raise UserError(
                f"--ray-cluster-options {part}: {value!r} is no whole number", f"for example {name}=4"
            ) from None
    return found
