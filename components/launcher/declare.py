"""How `component.py` files declare the container of a step. Imports kfp: never imported by what runs in a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kfp import dsl

from components.launcher.images import IMAGES


def step(
    image: str,
    name: str,
    arguments: Sequence[Any],
    hours: float,
    copies: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    metrics: Mapping[str, str] | None = None,
    work: str = "",
    extends: str = "",
) -> dsl.ContainerSpec:
    """The container that runs `components.<name>` under the launcher.

    Args:
        image: a key of IMAGES.
        arguments: the step's, with KFP's placeholders.
        hours: after which it is ended.
        copies, values, metrics: as the launcher's options, FILE -> place or output.
        work, extends: as the launcher's options.
    """
    options: list[Any] = ["--time-limit-s", str(round(3600 * hours))]
    options += ["--work", work, "--extends", extends] if work else []
    for flag, pairs in (("--copy", copies), ("--value", values), ("--metrics", metrics)):
        for file, place in (pairs or {}).items():
            options += [flag, f"{file}={place}"]
    return dsl.ContainerSpec(
        image=IMAGES[image],
        command=["python", "-m", "components.launcher"],
        args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER, *options, name, *arguments],
    )
