"""Helper for `component.py` files to declare a step's container. Imports kfp: code in containers never imports this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kfp import dsl

from components.platform.launcher.images import COMMAND, IMAGES
from components.platform.launcher.registry import STEPS, TASKS


def step(
    name: str,
    arguments: Mapping[str, Any],
    subcommand: str = "",
    words: Sequence[Any] = (),
    copies: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    metrics: Mapping[str, str] | None = None,
    matrices: Mapping[str, str] | None = None,
    work: str = "",
    extends: str = "",
) -> dsl.ContainerSpec:
    """Return the container that runs a task's step under the launcher.

    Args:
        name: key of registry.TASKS, which has the step, its image and its time limit.
        arguments: option of the step -> value, which may be one of KFP's placeholders; True for a flag; a list for an
            option that is repeated.
        copies, values, metrics, matrices: the launcher's options --copy and so on, FILE -> place or output; with
            metrics FILE may be FILE:KEY,...
    """
    task = TASKS[name]
    step = STEPS[task.step].module.removeprefix("components.")
    options: list[Any] = ["--task", name, "--time-limit-s", str(round(3600 * task.hours))]
    options += ["--work", work, "--extends", extends] if work else []
    pairs_of = {"--copy": copies, "--value": values, "--metrics": metrics, "--confusion-matrix": matrices}
    for flag, pairs in pairs_of.items():
        for file, target in (pairs or {}).items():
            options += [flag, f"{file}={target}"]
    command = [step, subcommand] if subcommand else [step]
    for option, value in arguments.items():
        if value is True:
            command.append(option)
        else:
            for one in value if isinstance(value, list) else [value]:
                command += [option, one]
    command += words
    return dsl.ContainerSpec(
        image=IMAGES[task.image],
        command=list(COMMAND),
        args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER, *options, *command],
    )
