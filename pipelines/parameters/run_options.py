"""The options of `mlgo run`, from the table of parameters, and their conversion to the pipeline's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from click.decorators import FC

from components.core.formats.strategy import EXTERNAL
from pipelines.parameters.check import check_values
from pipelines.parameters.parameter import as_option, as_text
from pipelines.parameters.tables import BY_NAME, TRAINING

_OFFERED = [parameter for parameter in TRAINING if parameter.option]


def run_options(command: FC) -> FC:
    """Give a command the options of a run, in the order of the table."""
    for parameter in reversed(_OFFERED):
        command = parameter.click_option()(command)
    return command


def run_parameters(options: Mapping[str, object]) -> dict[str, str]:
    """Return the pipeline's parameters as text, with absolute paths, from the values of options; others have defaults.

    A release clang is built whatever the verdict, because a user who starts a run by hand wants to see it; what it
    embeds: components/evaluation/release_policy.py.

    Raises:
        UserError: a value is one that no step accepts.
    """
    values = {parameter.name: _text(options.get(parameter.name, parameter.option_default)) for parameter in _OFFERED}
    values = {name: BY_NAME[name].absolute(text) for name, text in values.items()}
    values["features"] = values["features"] or ("llvm" if values["strategy"] == EXTERNAL else "extended")
    values["release_if"] = "always"
    check_values(values, as_option)
    return values


def _text(value: object) -> str:
    return as_text(value.absolute() if isinstance(value, Path) else value)
