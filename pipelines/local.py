"""Runs the compiled pipeline on this machine, without Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from components.console import UserError
from components.projects.recipe import recipe_place
from components.storage.fetch import fetch_file
from components.storage.uri import GsUri, parse_place
from pipelines.checks import START_WORDS, as_parameter, checked_values, uses_rayjob
from pipelines.facts import build_facts, content_facts, recipe_facts, remote_facts
from pipelines.flatten import steps_of
from pipelines.places import root_of
from pipelines.run import run_pipeline
from pipelines.runner import Runner
from pipelines.spec import load_spec
from pipelines.step import Places, Step

_FACTS: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "--recipe": recipe_facts,
    "--existing": content_facts,
    "--compile-commands": build_facts,
    "--llvm-source": content_facts,
    "--emphasize": content_facts,
    "--with-policy": content_facts,
    "--start-from": content_facts,
}
"""Options that name something outside of the run: its content, not its name, decides what is reused."""
_NAMES_MORE = {"--recipe", "--compile-commands"}


def run_locally(
    pipeline: Path, given: Mapping[str, str], output: Path, runner: Runner, pipeline_root: str = ""
) -> set[str]:
    """Runs a compiled pipeline.

    Args:
        pipeline: YAML of `mlgo pipeline compile`.
        given: the pipeline's parameters, as text; defaults for the others.
        output: absolute; logs and state, and the artifacts if there is no `pipeline_root`.
        pipeline_root: gs://BUCKET/PATH or a directory for the artifacts.

    Returns the steps that were left out by a condition. UserError as pipelines.run.run_pipeline.
    """
    root = root_of(pipeline_root, output)
    steps = local_steps(pipeline, given)
    return run_pipeline(steps, output, runner, Places(root, str(output / ".files")))


def local_steps(pipeline: Path, given: Mapping[str, str]) -> tuple[Step, ...]:
    """The pipeline's steps with the facts of this machine. UserError for a parameter that no step would take."""
    spec = load_spec(pipeline)
    values = checked_values(spec, given)
    if uses_rayjob(values):
        raise UserError(
            f"{as_parameter('workers', values['workers'])}: a RayJob is started by a step in a Kubernetes cluster",
            "mlgo pipeline submit --host URL; from here a Ray cluster is used by workers=ray:HOST:PORT",
        )
    steps = steps_of(spec, values)
    return tuple(replace(step, facts=tuple(_facts(step))) for step in steps)


def _facts(step: Step) -> Iterator[str]:
    for flag, value in zip(step.arguments, step.arguments[1:], strict=False):
        if flag not in _FACTS or not value or (flag == "--start-from" and value in START_WORDS):
            continue
        place = recipe_place(value) if flag == "--recipe" else parse_place(value)
        if isinstance(place, GsUri):
            # A recipe or a build names more than it holds: what it names is looked at as for one of this machine.
            yield from _FACTS[flag](fetch_file(place)) if flag in _NAMES_MORE else remote_facts(place)
        elif place.exists():
            yield from _FACTS[flag](place)
        elif flag != "--llvm-source":  # which need not be a place
            raise UserError(f"{value} does not exist", "check the path")
