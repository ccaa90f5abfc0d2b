"""Command line of the launcher, which every container of the pipeline runs."""

from __future__ import annotations

import itertools
import runpy
import shutil
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import click

from components.platform.command import run_step
from components.platform.console.interrupts import raise_soon
from components.platform.console.number_types import FiniteFloatRange
from components.platform.errors import UserError
from components.platform.launcher.executor import (
    confusion_matrix,
    describe_lineage,
    find_outputs_at,
    parse_executor_input,
    select_numbers,
    write_executor_output,
)
from components.platform.launcher.kfp_locations import locate_outputs, resolve_locations
from components.platform.launcher.step_cost import measured
from components.platform.storage.input_files import path_errors, read_json
from components.platform.storage.uri import ObjectUri, mirror, parse_location


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Example (as KFP calls it):
  python -m components.platform.launcher --executor-input '{{$}}' --copy report.html=/gcs/b/page.html \\
    evaluation --corpus gs://b/corpus ... --output gs://b/evaluation
""",
)
@click.option("--executor-input", default="{}", help="KFP's ExecutorInput in JSON: the placeholder {{$}}.")
@click.option(
    "--time-limit-s",
    type=FiniteFloatRange(min=0, max=366 * 86400),
    default=0,
    help="Time limit of the step in seconds.  [default: none]",
)
@click.option(
    "--copy",
    "copies",
    multiple=True,
    metavar="FILE=PATH",
    help="Copy FILE of the artifact at --output to PATH, for KFP's user interface.",
)
@click.option(
    "--value",
    "values",
    multiple=True,
    metavar="FILE:KEY=PATH",
    help="Write one value of a JSON file of that artifact to PATH, as an output parameter.",
)
@click.option(
    "--metrics",
    multiple=True,
    metavar="FILE[:KEY,...]=NAME",
    help="Use numbers in a JSON file of that artifact, all or those at dotted KEYs, as metadata of the output NAME.",
)
@click.option(
    "--confusion-matrix",
    "matrices",
    multiple=True,
    metavar="FILE=NAME",
    help="Show the key `confusion_matrix` of a JSON file of that artifact, unless it is null, as the output NAME.",
)
@click.option(
    "--work",
    default="",
    metavar="NAME",
    help="The output NAME is a working directory that the step resumes from when it runs again, unless KFP copies it.",
)
@click.option(
    "--artifact-root",
    default="",
    metavar="URI",
    help="gs://BUCKET/PATH or s3://BUCKET/PATH below which the step itself writes its artifacts.  [default: where KFP "
    "wants them]",
)
@click.option(
    "--extends",
    default="",
    metavar="OPTIONS",
    help="Comma-separated options of the step that may change when it resumes. For runners.",
)
@click.option(
    "--content",
    default="",
    metavar="DIGEST",
    help="Digest of what is at the paths and URIs in ARGUMENTS, for a server that identifies steps by their command.",
)
@click.option("--task", default="", metavar="NAME", help="Name of the step in tables of costs.  [default: STEP]")
@click.argument("step")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(
    executor_input: str,
    time_limit_s: float,
    copies: tuple[str, ...],
    values: tuple[str, ...],
    metrics: tuple[str, ...],
    matrices: tuple[str, ...],
    work: str,
    artifact_root: str,
    extends: str,
    content: str,
    task: str,
    step: str,
    arguments: tuple[str, ...],
) -> int:
    """Run STEP with ARGUMENTS, then report its outputs to Kubeflow Pipelines.

    STEP is a folder of components/, or a package with its full name, such as pipelines.retrain.

    Options with empty values are omitted: an empty pipeline parameter means the step's own default.
    """
    kfp = parse_executor_input(executor_input)
    step_arguments = drop_empty_options(arguments)
    resolved = resolve_locations(step_arguments, kfp, work, artifact_root)
    with measured(task or step, kfp) as meter:
        status = _run(step, resolved, time_limit_s)
    if status != 0:
        return status
    location = parse_location(_output_option(resolved))
    directory = mirror(location) if isinstance(location, ObjectUri) else location
    for copy in copies:
        file, path = _split_pair(copy)
        _make_parent(path)
        with path_errors(directory / file, "see the step's log"):
            shutil.copyfile(directory / file, path)
    for value in values:
        source, path = _split_pair(value)
        file, _colon, key = source.partition(":")
        _make_parent(path).write_text(str(_value(directory / file, key)), encoding="utf-8")
    metadata: dict[str, dict[str, Any]] = dict(locate_outputs(step_arguments, kfp, artifact_root))
    for name in find_outputs_at(kfp, _output_option(step_arguments)):
        metadata[name] = {**describe_lineage(directory), **meter.metadata(), **metadata.get(name, {})}
    for metric in metrics:
        source, name = _split_pair(metric)
        file, _colon, keys = source.partition(":")
        shown = select_numbers(_document(directory / file), [key for key in keys.split(",") if key])
        metadata[name] = {**metadata.get(name, {}), **shown, **meter.cost().metadata()}
    for matrix in matrices:
        file, name = _split_pair(matrix)
        metadata[name] = confusion_matrix(_value(directory / file, "confusion_matrix"))
    write_executor_output(kfp, metadata)
    return 0


def drop_empty_options(arguments: Sequence[str]) -> list[str]:
    """Drop `--flag ''` and `--flag false` from the arguments; `--flag true` becomes `--flag`.

    KFP cannot omit an argument depending on a pipeline parameter, and writes booleans in JSON.
    """
    nonempty: list[str] = []
    for argument in arguments:
        after_flag = bool(nonempty) and nonempty[-1].startswith("--")
        if after_flag and argument in ("", "false"):
            nonempty.pop()
        elif not (after_flag and argument == "true"):
            nonempty.append(argument)
    return nonempty


def _document(path: Path) -> dict[str, Any]:
    """Read the JSON object that a step wrote to `path`. UserError if it is not one."""
    document = read_json(path, "see the step's log")
    if not isinstance(document, dict):
        raise UserError(f"{path} is not a JSON object", "see the step's log")
    return document


def _value(path: Path, key: str) -> Any:
    document = _document(path)
    if key not in document:
        raise UserError(f"{path} has no key {key!r}", f"it has {', '.join(sorted(document)[:20])}")
    return document[key]


def _run(step: str, arguments: Sequence[str], time_limit_s: float) -> int:
    def raise_timeout(_number: int, frame: FrameType | None) -> None:
        problem = f"the step {step} took more than {time_limit_s:.0f} s"
        raise_soon(lambda: UserError(problem, "raise its time limit in the pipeline"), frame)

    module = module_of(step)
    if not all(part.isidentifier() for part in step.split(".")) or not _exists(module):
        raise UserError(f"there is no step {step!r}", "mlgo --help lists the steps")
    if time_limit_s:
        signal.signal(signal.SIGALRM, raise_timeout)
        signal.setitimer(signal.ITIMER_REAL, time_limit_s)
    sys.argv = [step, *arguments]
    try:
        runpy.run_module(module, run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return 0


def module_of(step: str) -> str:
    """Return the package of a step that the launcher gets: "vocab" or "pipelines.retrain"."""
    return step if "." in step else f"components.{step}"


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # no such parent package
        return False


def _output_option(arguments: Sequence[str]) -> str:
    return next((value for flag, value in itertools.pairwise(arguments) if flag == "--output"), "")


def _split_pair(text: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not (left and equals and right):
        raise UserError(f"{text!r} is not of the form FILE=PATH", "see --help")
    return left, right


def _make_parent(path: str) -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return Path(path)


if __name__ == "__main__":
    run_step(main)
