"""What is asked of a run, checked before its first step begins or anything is sent: a late step would refuse it hours
later, and on a server nobody sees it at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from components import problems
from components.console import PRESETS, UserError
from components.console.number_types import LLVM_MAJOR, MINUTES, SEED, FiniteFloatRange
from components.evaluation.config import RELEASE_IF
from components.formats.policy import HEURISTIC, PRETRAINED
from components.ppo.rayjob_options import parse_settings, parse_spot
from components.projects.recipe import recipe_place
from components.storage.uri import SCHEME, parse_place
from components.workers.make import check_workers, rayjob_workers
from pipelines.spec import parameter_values
from pipelines.with_policy import check_start_from, check_with_policy

START_WORDS = (HEURISTIC, PRETRAINED)
"""What `start_from` may be but the place of a policy."""
_SOURCES = {"compile_commands": "FILE", "corpus": "DIR", "recipe": "FILE"}
_KINDS: dict[str, tuple[click.ParamType, str]] = {
    "preset": (click.Choice(PRESETS), "demo"),
    "problem": (click.Choice(problems.names()), "inlining"),
    "release_if": (click.Choice(RELEASE_IF), "always"),
    "seed": (SEED, "1"),
    "llvm_major": (LLVM_MAJOR, "19"),
    "train_minutes": (FiniteFloatRange(min=0, min_open=True, max=MINUTES.max), "60"),
    "min_reduction_percent": (FiniteFloatRange(max=100), "0.5"),
    "max_slowdown_percent": (FiniteFloatRange(), "5"),
    "tune_minutes": (FiniteFloatRange(min=0, min_open=True, max=MINUTES.max), "15"),
}
"""What a parameter of the pipeline may be, and an example."""


def as_option(name: str, value: object) -> str:
    """How `mlgo run` is told a parameter of the pipeline."""
    return f"--{name.replace('_', '-')} {value}"


def as_parameter(name: str, value: object) -> str:
    """How `mlgo pipeline` is told it."""
    return f"--param {name}={value}"


def checked_values(spec: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The values of a pipeline's parameters: `given` (as text), the defaults for the others.

    Raises:
        UserError: there is no such parameter, or one is what no step would take.
    """
    values = parameter_values(spec, given)
    check_values(values, as_parameter)
    return values


def check_values(values: Mapping[str, Any], spelled: Callable[[str, object], str]) -> None:
    """Raises UserError, in the words of whoever is asked, for what no step would take.

    Args:
        values: parameters by name; of another pipeline than ours those are looked at that it has, too.
        spelled: as_option or as_parameter.
    """
    if set(_SOURCES) <= set(values):
        sources = [name for name in _SOURCES if values[name]]
        if len(sources) != 1:
            raise UserError(
                f"exactly one source of code is needed, {len(sources) or 'none'} given",
                f"pass one of {', '.join(spelled(name, value) for name, value in _SOURCES.items())}",
            )
    for name, (kind, example) in _KINDS.items():
        value = values.get(name, "")
        if value == "":
            continue
        try:
            kind.convert(value, None, None)
        except (click.BadParameter, TypeError) as error:  # a default that is a list, of a pipeline written by hand
            problem = f"{spelled(name, value)}: {getattr(error, 'message', error)}"
            raise UserError(problem, f"for example {spelled(name, example)}") from None
    if values.get("tune_minutes") and values["problem"] != "inlining":
        raise UserError(
            f"{spelled('tune_minutes', values['tune_minutes'])}: a plan is of inlining decisions, and this run is for "
            f"{values['problem']}",
            f"leave {spelled('tune_minutes', '')} out",
        )
    if limit := values.get("max_slowdown_percent"):
        sized = problems.get(values["problem"]).measure == "size"
        if not sized or not values.get("recipe"):
            why = "no benchmarks to run without a recipe" if sized else f"of no use for {values['problem']}"
            raise UserError(
                f"{spelled('max_slowdown_percent', limit)}: {why}",
                f"leave {spelled('max_slowdown_percent', '')} out" + (", or name a recipe" if sized else ""),
            )
    if values.get("workers"):
        check_workers(values["workers"])
    parse_spot(values.get("spot", ""))
    parse_settings(values.get("cluster", ""))
    if with_policy := values.get("with_policy"):
        check_with_policy(
            with_policy, values["problem"], int(values["llvm_major"]), spelled("with_policy", with_policy)
        )
    if values.get("start_from", "") not in ("", *START_WORDS):
        check_start_from(
            values["start_from"], values["problem"], spelled("start_from", values["start_from"])
        )
    # A recipe by its path may be there for the step and not here; a bare name is one of ours, wherever the step runs.
    if values.get("recipe") and "/" not in values["recipe"]:
        recipe_place(values["recipe"])


def uses_rayjob(values: Mapping[str, Any]) -> bool:
    """Whether the PPO step of a pipeline with these parameters starts a Ray cluster."""
    return rayjob_workers(values.get("workers") or "") is not None


def check_cloud_root(root: str) -> None:
    """Raises UserError if --pipeline-root is no place in Cloud Storage, the only one that all steps on a server see."""
    if not root.startswith(SCHEME):
        given = f"--pipeline-root {root}" if root else "no --pipeline-root"
        raise UserError(
            f"{given}: on a server, steps hand artifacts on in Cloud Storage", "pass --pipeline-root gs://BUCKET/PATH"
        )
    parse_place(root)
