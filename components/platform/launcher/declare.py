"""Helper for `component.py` files to declare a step's container. Imports kfp: code in containers never imports this."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfp import dsl

from components.platform.launcher.images import COMMAND, IMAGES
from components.platform.launcher.registry import STEPS, TASKS


@dataclass(frozen=True)
class Port:
    """An input or output of a component.

    Attributes:
        text: description; "" for none.
        kind: annotation by which KFP knows the type.
        option: option of the step that gets its value or URI; None for that of its name, "" for none.
    """

    name: str
    text: str
    kind: Any = str
    option: str | None = None


def component(
    name: str,
    summary: str,
    *parts: Port | tuple[str, Any],
    subcommand: str = "",
    shell: str = "",
    copies: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
    metrics: Mapping[str, str] | None = None,
    matrices: Mapping[str, str] | None = None,
    work: str = "",
    extends: str = "",
) -> Any:
    """Return the component whose container runs a task's step under the launcher.

    Args:
        name: key of registry.TASKS, which has the step, its image and its time limit.
        parts: inputs, outputs, and options with a constant value, True for a flag, in the order of the command line.
        shell: name of the input that follows the options, behind --.
        copies, values, metrics, matrices: the launcher's options --copy and so on, FILE -> name of an output; with
            metrics FILE may be FILE:KEY,...
    """
    task = TASKS[name]
    ports = [part for part in parts if isinstance(part, Port)]

    def container(*placeholders: Any) -> dsl.ContainerSpec:
        given = {port.name: placeholder for port, placeholder in zip(ports, placeholders, strict=True)}
        options: list[Any] = ["--time-limit-s", str(round(3600 * task.hours))]
        options += ["--work", work, "--extends", extends] if work else []
        for file, output in (copies or {}).items():
            options += ["--copy", f"{file}={given[output].path}"]
        for file, output in (values or {}).items():
            options += ["--value", f"{file}={given[output]}"]
        for flag, pairs in (("--metrics", metrics), ("--confusion-matrix", matrices)):
            for file, output in (pairs or {}).items():
                options += [flag, f"{file}={output}"]
        options.append(STEPS[task.step].module.removeprefix("components."))
        options += [subcommand] if subcommand else []
        for part in parts:
            if isinstance(part, Port):
                option = f"--{part.name.replace('_', '-')}" if part.option is None else part.option
                options += [option, getattr(given[part.name], "uri", given[part.name])] if option else []
            else:
                options += part[:1] if part[1] is True else part
        options += ["--", given[shell]] if shell else []
        return dsl.ContainerSpec(
            image=IMAGES[task.image],
            command=list(COMMAND),
            args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER, *options],
        )

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(port.name, kind, annotation=port.kind) for port in ports]
    container.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    container.__name__ = name.replace("-", "_")
    described = (f"    {port.name}: {port.text}".replace("\n", "\n        ") for port in ports if port.text)
    container.__doc__ = "\n".join([summary, "", "Args:", *described])
    return dsl.container_component(container)
