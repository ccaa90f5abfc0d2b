"""Helper for `component.py` files to declare a step's container. Imports kfp: code in containers never imports this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kfp import dsl

from components.platform.launcher.images import COMMAND, IMAGES


def step(
    image: str,
    name: str,
    arguments: Sequence[Any],
    hours: float,
    copies: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    metrics: Mapping[str, str] | None = None,
    matrices: Mapping[str, str] | None = None,
    work: str = "",
    extends: str = "",
) -> dsl.ContainerSpec:
    """Return the container that runs `components.<name>` under the launcher.

    Args:
        image: a key of IMAGES.
        arguments: arguments of the step, with KFP's placeholders.
        hours: time limit of the step.
        copies, values, metrics, matrices: the launcher's options --copy and so on, FILE -> place or output; with
            metrics FILE may be FILE:KEY,...
        work, extends: the launcher's options of these names.
    """
    options: list[Any] = ["--time-limit-s", str(round(3600 * hours))]
    options += ["--work", work, "--extends", extends] if work else []
    pairs_of = {"--copy": copies, "--value": values, "--metrics": metrics, "--confusion-matrix": matrices}
    for flag, pairs in pairs_of.items():
        for file, place in (pairs or {}).items():
            options += [flag, f"{file}={place}"]
    return dsl.ContainerSpec(
        image=IMAGES[image],
        command=list(COMMAND),
        args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER, *options, name, *arguments],
    )
