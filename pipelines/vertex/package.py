"""A pipeline as Vertex AI takes it: digests of images, limits and accelerators of steps, retries.

It reads the limits and the accelerator of a step, and chooses the machine that is closest to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from components.platform.errors import UserError
from pipelines.spec import expect_pipeline
from pipelines.spec_changes import dags, with_given_digests, without_cache, without_literals
from pipelines.submit.options import Package, SubmitOptions
from pipelines.submit.overrides import by_executor, set_resources
from pipelines.submit.overrides_document import KEYS, StepOverrides

_MAX_RETRIES_S = 3600
_KEYS = ("cpu", "memory", "accelerator", "env")
ACCELERATORS = (
    "NVIDIA_TESLA_K80 NVIDIA_TESLA_P100 NVIDIA_TESLA_V100 NVIDIA_TESLA_P4 NVIDIA_TESLA_T4 NVIDIA_TESLA_A100 "
    "NVIDIA_A100_80GB NVIDIA_L4 NVIDIA_H100_80GB NVIDIA_H100_MEGA_80GB NVIDIA_H200_141GB NVIDIA_B200 NVIDIA_GB200 "
    "NVIDIA_RTX_PRO_6000 TPU_V2 TPU_V3 TPU_V4_POD TPU_V5_LITEPOD"
).split()
"""AcceleratorType of google-cloud-aiplatform 2.7.0 (aiplatform_v1/types/accelerator_type.py)."""


def make_package(options: SubmitOptions) -> Package:
    """Return the pipeline with digests of images and what else the options change.

    Raises:
        UserError: an image was not pushed, or the pipeline or the service does not have what the overrides ask for.
    """
    spec = with_given_digests(options.spec, options.images)
    if not options.cache:
        spec = without_cache(spec)
    # Whether the service knows `literals` was not tried.
    return Package(override_steps(shorten_retries(without_literals(spec)), options.overrides))


@expect_pipeline
def override_steps(spec: Mapping[str, Any], overrides: Mapping[str, StepOverrides]) -> dict[str, Any]:
    """Return a copy of the PipelineSpec with the resources of each step.

    Raises:
        UserError: the pipeline has no such step, or Vertex AI has no such setting.
    """
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for task, label, step in by_executor(spec, overrides):
        if step.machine_type is not None:
            raise UserError(
                f"--overrides: {task}: machine_type: Vertex AI Pipelines chooses the machine of a step itself",
                "set cpu.limit, memory.limit and accelerator: it takes the closest machine",
            )
        for key in KEYS:
            if key not in _KEYS and getattr(step, key) is not None:
                raise UserError(
                    f"--overrides: {task}: {key}: Vertex AI has no such setting", f"it has {', '.join(_KEYS)}"
                )
        for key in ("cpu", "memory"):
            if (amount := getattr(step, key)) and amount.request is not None:
                raise UserError(
                    f"--overrides: {task}: {key}: request: Vertex AI reads limits only",
                    f"leave it out, and set {key}.limit",
                )
        if step.accelerator and step.accelerator.type not in ACCELERATORS:
            raise UserError(
                f"--overrides: {task}: accelerator: Vertex AI has no type {step.accelerator.type!r}",
                f"it has {', '.join(ACCELERATORS)}",
            )
        resources = set_resources(copy["deploymentSpec"]["executors"][label]["container"], step)
        for name, amount in (("cpu", step.cpu), ("memory", step.memory)):
            # The compiled request may exceed the new limit, and Vertex AI does not read it.
            for stale in (f"{name}Request", f"resource{name.capitalize()}Request") if amount else ():
                resources.pop(stale, None)
    return copy


@expect_pipeline
def shorten_retries(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a PipelineSpec whose attempts of a step take no longer than Vertex AI's API allows."""
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for tasks in dags(copy):
        for task in tasks.values():
            retry = task.get("retryPolicy", {})
            if (limit := retry.get("backoffMaxDuration")) and float(limit.removesuffix("s")) > _MAX_RETRIES_S:
                retry["backoffMaxDuration"] = f"{_MAX_RETRIES_S}s"
    return copy
