"""Check what the user asks any server to run: that buckets exist, parameters, what a stored pipeline cannot take."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.uri import GS
from pipelines.parameters.check import checked_values, describe_llvm_build, uses_rayjob
from pipelines.parameters.on_server import (
    check_bucket_exists,
    check_llvm_in_images,
    check_places_on_server,
    check_recipe_in_images,
    check_state_on_server,
)
from pipelines.parameters.parameter import as_parameter
from pipelines.spec import builds_sdk
from pipelines.submit.options import Package, RunRequest, SubmitOptions
from pipelines.submit.reuse import reuse_results


def run_request(
    options: SubmitOptions, values: Mapping[str, Any], package: Package | None, starts_now: bool
) -> RunRequest:
    """Return what the server is sent.

    Args:
        package: the pipeline for this server; None for a stored one.
        starts_now: the run reads its inputs as they are now, so their content decides what is reused. The runs of a
            schedule read them later.
    """
    if package and starts_now and options.cache:
        package = reuse_results(package, values)
    given = {name: values[name] for name in options.parameters}
    name = options.name or f"{options.pipeline}-{time.strftime('%Y%m%d-%H%M%S')}"
    return RunRequest(options, package, given, name)


def check_run(options: SubmitOptions) -> tuple[dict[str, Any], bool | None]:
    """Check what holds on every server: the roots and the parameters.

    Raises:
        UserError: a parameter, a root or another option is invalid, or a stored pipeline cannot have it.
    """
    if options.stored_pipeline:
        _refuse_changes(options)
    for option, root in (("--pipeline-root", options.pipeline_root), ("--artifact-root", options.artifact_root)):
        if root.startswith(f"{GS}://"):
            check_bucket_exists(root, option)
    values = checked_values(options.spec, options.parameters)
    # The volumes of a stored version are unknown.
    mounts = [path for step in options.overrides.values() for _key, _volume, path in step.mounts()]
    check_places_on_server(values, None if options.stored_pipeline else mounts)
    if not builds_sdk(options.spec):
        check_llvm_in_images(values)
        check_recipe_in_images(values)
    if state := values.get("retrain_state"):
        check_state_on_server(state, options.pipeline_root, options.artifact_root)
    if remark := describe_llvm_build(values, as_parameter):
        say(remark)
    return values, uses_rayjob(values) if "workers" in values else None


def _refuse_changes(options: SubmitOptions) -> None:
    """Raise UserError for an option that changes the pipeline, which is stored."""
    for name in ("overrides", "small", "notify_secret", "ttl_hours", "deadline_hours"):
        if getattr(options, name):
            refuse_change(options, name)
    if options.commit_secret or options.commit:
        raise UserError(
            "--commit-secret changes the pipeline, which is stored on the server",
            f"leave --stored-pipeline {options.stored_pipeline} out",
        )
    if not options.cache:
        raise UserError("--no-cache changes the pipeline, which is stored on the server", "pass it to upload")


def refuse_change(options: SubmitOptions, name: str) -> None:
    """Raise the UserError for the option `name`, which changes the pipeline, which is stored."""
    raise UserError(
        f"--{name.replace('_', '-')} changes the pipeline, which is stored on the server",
        f"pass it to mlgo pipeline upload, or leave --stored-pipeline {options.stored_pipeline} out",
    )
