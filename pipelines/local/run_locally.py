"""Run the compiled pipeline on this machine, without Kubernetes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from components.core.formats.deployment import read_deployment
from components.core.projects.recipe import locate_recipe
from components.platform.errors import UserError
from components.platform.storage.downloads.archive import is_archive_url
from components.platform.storage.object_storage.fetch import fetch_file
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import ObjectUri, parse_location
from pipelines.local.cache_inputs import identify_remote
from pipelines.local.ir import steps_of
from pipelines.local.locations import artifact_root
from pipelines.local.runners.runner import Runner
from pipelines.local.scheduler import run_pipeline
from pipelines.local.step import RunLocations, Step
from pipelines.local.targets import require_inputs_kept
from pipelines.parameters.check import checked_values, uses_rayjob
from pipelines.parameters.on_server import require_shared
from pipelines.parameters.parameter import FormatParameter, Parameter, as_parameter
from pipelines.parameters.tables import TRAINING
from pipelines.retrain.state import load_state
from pipelines.spec import load_spec

_BY_OPTION = {parameter.step_option: parameter for parameter in TRAINING if parameter.reference}
"""Option of steps -> the parameter that it gets, of those that name something outside of the run."""
_STATES = {"--state", "--retrain-state"}
"""Options that name the state of retraining, which need not exist yet."""
_SMOKE_TEST = "pipelines.smoke"
"""Argument of the launcher in steps that look at the present state of their machine."""


def run_locally(
    pipeline: Path,
    parameters: Mapping[str, str],
    output: Path,
    runner: Runner,
    pipeline_root: str = "",
    write: FormatParameter = as_parameter,
) -> set[str]:
    """Run a compiled pipeline.

    Args:
        pipeline: YAML file written by `mlgo pipeline compile`.
        parameters: the pipeline's, as text; the others have their defaults.
        output: absolute path of the run directory: logs, state, and, without `pipeline_root`, artifacts.
        pipeline_root: a URI in object storage or a directory for the artifacts.
        write: as_option or as_parameter: how messages write a parameter.

    Returns:
        The names of the steps that a condition skipped.

    Raises:
        UserError: see pipelines.local.scheduler.run_pipeline; or the run would overwrite what a parameter names, or a
            policy that is or was deployed, or promote one that others cannot read.
    """
    root = artifact_root(pipeline_root, output)
    if state := parameters.get("retrain_state"):
        require_shared(state, "--pipeline-root", root)
        load_state(state).require_outside(root)
    steps = local_steps(pipeline, parameters, write)
    locations = RunLocations(root, str(output / ".files"))
    require_inputs_kept(parameters, steps, locations, write)
    return run_pipeline(steps, output, runner, locations)


def local_steps(
    pipeline: Path, parameters: Mapping[str, str], write: FormatParameter = as_parameter
) -> tuple[Step, ...]:
    """Return the pipeline's steps, with the state of this machine that their results depend on.

    Raises:
        UserError: a parameter has a value that no step accepts.
    """
    spec = load_spec(pipeline)
    values = checked_values(spec, parameters, write)
    if uses_rayjob(values):
        raise UserError(
            f"{write('workers', values['workers'])}: only a step in a Kubernetes cluster can start a RayJob",
            "use mlgo pipeline submit --host URL, or workers=ray:HOST:PORT to use a Ray cluster from here",
        )
    steps = steps_of(spec, values)
    return tuple(replace(step, cache_inputs=tuple(_cache_inputs(step, write))) for step in steps)


def _cache_inputs(step: Step, write: FormatParameter) -> Iterator[str]:
    if _SMOKE_TEST in step.arguments:
        yield str(time.time())
    for option, value in itertools.pairwise(step.arguments):
        if not value:
            continue
        if option in _STATES:
            # Steps use only the deployment in the state; each decision changes the rest of the state.
            deployment = read_deployment(value)
            yield deployment.deployed.policy_digest if deployment.deployed else "nothing is deployed"
            yield ",".join(deployment.regressed)
        elif option in _BY_OPTION:
            yield from _identify(_BY_OPTION[option], value, write)


def _identify(parameter: Parameter, value: str, write: FormatParameter) -> tuple[str, ...]:
    """Return what identifies the content that a parameter names; nothing for a word."""
    reference = parameter.reference
    assert reference is not None
    is_recipe = parameter.name == "recipe"  # whose words name content, too
    if value in parameter.words and not is_recipe:
        return ()
    if reference.archives and is_archive_url(value):
        return (value,)  # with its checksum, without which the step refuses it
    location = locate_recipe(value) if is_recipe else parse_location(value)
    if isinstance(location, ObjectUri):
        is_list = reference.refers_to_files and store_of(location).head(location) is not None
        return reference.identify(fetch_file(location)) if is_list else identify_remote(location)
    if location.exists():
        return reference.identify(location)
    words = parameter.words
    others = f", or pass one of {', '.join(words.words + words.prefixes)}" if words.words else ""
    raise UserError(f"{write(parameter.name, value)} does not exist", f"check the path{others}")
