"""Run the compiled pipeline on this machine, without Kubernetes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from components.core.formats.deployment import read_deployment
from components.core.projects.recipe import locate_recipe
from components.platform.errors import UserError
from components.platform.storage.object_storage.fetch import fetch_file
from components.platform.storage.uri import ObjectUri, parse_location
from pipelines.local.cache_inputs import identify_build, identify_clang, identify_path, identify_recipe, identify_remote
from pipelines.local.ir import steps_of
from pipelines.local.locations import artifact_root
from pipelines.local.runners.runner import Runner
from pipelines.local.scheduler import run_pipeline
from pipelines.local.step import RunLocations, Step
from pipelines.local.targets import require_inputs_kept
from pipelines.retrain.state import load_state
from pipelines.spec import load_spec
from pipelines.validation import as_parameter, checked_values, place_words, require_shared, uses_rayjob

_IDENTIFIED: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "--recipe": identify_recipe,
    "--existing": identify_path,
    "--compile-commands": identify_build,
    "--llvm-source": identify_path,
    "--sdk": identify_path,
    "--clang": identify_clang,
    "--oversample-modules": identify_path,
    "--extra-policy": identify_path,
    "--start-from": identify_path,
    "--ir2vec-vocab": identify_path,
}
"""Options that name something outside the run: its content, not its name, decides whether a step is reused."""
_PARAMETERS = {"--existing": "corpus"}
"""Pipeline parameters of options that have other names."""
_STATES = {"--state", "--retrain-state"}
"""Options that name the state of retraining, which need not exist yet."""
_NAMES_MORE = {"--recipe", "--compile-commands"}
_SMOKE_TEST = "pipelines.smoke"
"""Argument of the launcher in steps that look at the present state of their machine."""


def run_locally(
    pipeline: Path,
    given: Mapping[str, str],
    output: Path,
    runner: Runner,
    pipeline_root: str = "",
    spelled: Callable[[str, object], str] = as_parameter,
) -> set[str]:
    """Run a compiled pipeline.

    Args:
        pipeline: YAML file written by `mlgo pipeline compile`.
        given: the pipeline's parameters, as text; the others have their defaults.
        output: absolute path of the run directory: logs, state, and, without `pipeline_root`, artifacts.
        pipeline_root: a URI in object storage or a directory for the artifacts.
        spelled: as_option or as_parameter: how messages write a parameter.

    Returns:
        The names of the steps that a condition skipped.

    Raises:
        UserError: see pipelines.local.scheduler.run_pipeline; or the run would overwrite what a parameter names, or a
            policy that is or was deployed, or promote one that others cannot read.
    """
    root = artifact_root(pipeline_root, output)
    if state := given.get("retrain_state"):
        require_shared(state, "--pipeline-root", root)
        load_state(state).require_outside(root)
    steps = local_steps(pipeline, given, spelled)
    locations = RunLocations(root, str(output / ".files"))
    require_inputs_kept(given, steps, locations, spelled)
    return run_pipeline(steps, output, runner, locations)


def local_steps(
    pipeline: Path, given: Mapping[str, str], spelled: Callable[[str, object], str] = as_parameter
) -> tuple[Step, ...]:
    """Return the pipeline's steps, with the state of this machine that their results depend on.

    Args:
        pipeline, given, spelled: as for `run_locally`.

    Raises:
        UserError: a parameter has a value that no step accepts.
    """
    spec = load_spec(pipeline)
    values = checked_values(spec, given)
    if uses_rayjob(values):
        raise UserError(
            f"{spelled('workers', values['workers'])}: only a step in a Kubernetes cluster can start a RayJob",
            "use mlgo pipeline submit --host URL, or workers=ray:HOST:PORT to use a Ray cluster from here",
        )
    steps = steps_of(spec, values)
    return tuple(replace(step, cache_inputs=tuple(_cache_inputs(step, spelled))) for step in steps)


def _cache_inputs(step: Step, spelled: Callable[[str, object], str]) -> Iterator[str]:
    if _SMOKE_TEST in step.arguments:
        yield str(time.time())
    for flag, value in zip(step.arguments, step.arguments[1:], strict=False):
        if flag in _STATES and value:
            # Steps use only the deployment in the state; each decision changes the rest of the state.
            deployment = read_deployment(value)
            yield deployment.deployed.policy_digest if deployment.deployed else "nothing is deployed"
            yield ",".join(deployment.regressed)
        parameter = _PARAMETERS.get(flag, flag.removeprefix("--").replace("-", "_"))
        words = place_words(parameter)
        if flag not in _IDENTIFIED or not value or (value in words and flag != "--recipe"):
            continue
        place = locate_recipe(value) if flag == "--recipe" else parse_location(value)
        if isinstance(place, ObjectUri):
            # A recipe or a build refers to further files, so download it and look at those as for a local one.
            yield from _IDENTIFIED[flag](fetch_file(place)) if flag in _NAMES_MORE else identify_remote(place)
        elif place.exists():
            yield from _IDENTIFIED[flag](place)
        else:
            others = f", or pass one of {', '.join(words.words + words.prefixes)}" if words.words else ""
            raise UserError(f"{spelled(parameter, value)} does not exist", f"check the path{others}")
