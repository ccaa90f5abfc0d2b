"""Check a pipeline's parameters, before a step starts or anything is submitted; those of `mlgo run` are options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.decorators import FC

from components.core.formats.policy import HEURISTIC, PRETRAINED_LLVM, PRETRAINED_OF_OUR_FEATURES
from components.core.formats.strategy import EXTERNAL
from components.platform.workers.factory import rayjob_workers
from components.toolchain.config import SdkConfig
from pipelines.parameters.parameter import FormatParameter, Parameter, as_option, as_parameter, as_text
from pipelines.parameters.rules import check_rules
from pipelines.parameters.tables import SDK, SHRINK, SMOKE, TRAINING
from pipelines.spec import builds_sdk, parameter_values

_OFFERED = [parameter for parameter in TRAINING if parameter.option]


def checked_values(
    spec: Mapping[str, Any], texts: Mapping[str, str], write: FormatParameter = as_parameter
) -> dict[str, Any]:
    """Return the values of all parameters of a compiled pipeline: those in `texts`, defaults for the others.

    Args:
        write: as_option or as_parameter: how messages write a parameter.

    Raises:
        UserError: a parameter is unknown, or has a value that no step accepts.
    """
    values = parameter_values(spec, texts)
    if builds_sdk(spec):
        typed = {name: value for name, value in typed_values(values, SDK, write).items() if value not in ("", None)}
        SdkConfig(output=Path("sdk"), definitions=dict(typed.pop("definitions", ())), **typed)
    else:
        check_values(values, write)
        typed_values(values, [*SHRINK, *SMOKE], write)
    return values


def check_values(values: Mapping[str, Any], write: FormatParameter) -> None:
    """Raise UserError for values that no step of the training accepts.

    Args:
        values: by parameter. Of another pipeline than ours, only the parameters that it shares with ours are checked.
        write: as_option or as_parameter.
    """
    check_rules(typed_values(values, TRAINING, write), write)


def typed_values(values: Mapping[str, Any], table: Iterable[Parameter], write: FormatParameter) -> dict[str, Any]:
    """Return those of `values` that are in a table, as their types make them.

    An empty value is "" of texts, else None. UserError if a value is invalid.
    """
    typed: dict[str, Any] = {}
    for parameter in table:
        if parameter.name not in values:
            continue
        if (value := values[parameter.name]) == "" and "" in (parameter.literals or ("",)):
            typed[parameter.name] = "" if parameter.type is click.STRING else None
        else:
            typed[parameter.name] = parameter.convert(value, write)
    return typed


def describe_llvm_build(values: Mapping[str, Any], write: FormatParameter) -> str:
    """Return a remark if the policy of a training could not be embedded by LLVM's own build, else "".

    Said before the training: afterwards only another training helps.
    """
    ours, start = PRETRAINED_OF_OUR_FEATURES.get(str(values.get("problem"))), values.get("start_from") or HEURISTIC
    if values.get("strategy") == EXTERNAL or not ours:  # an external clang has LLVM's features only
        return ""
    if values.get("features") not in ("extended", "ir2vec") or start not in (HEURISTIC, *ours):
        return ""
    remedy = write("features", "llvm") if start == HEURISTIC else write("start_from", PRETRAINED_LLVM)
    return (
        "the policy will use features that only the clangs and the plugin of mlgo toolchain compute; for a policy that "
        f"LLVM's own build can embed pass {remedy}"
    )


def uses_rayjob(values: Mapping[str, Any]) -> bool:
    """Return whether the training step of a pipeline with these parameters starts a Ray cluster."""
    return rayjob_workers(values.get("workers") or "") is not None


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
    values = {}
    for parameter in _OFFERED:
        value = options.get(parameter.name, parameter.option_default)
        text = as_text(value.absolute() if isinstance(value, Path) else value)
        values[parameter.name] = parameter.absolute(text)
    values["features"] = values["features"] or ("llvm" if values["strategy"] == EXTERNAL else "extended")
    values["release_if"] = "always"
    check_values(values, as_option)
    return values
