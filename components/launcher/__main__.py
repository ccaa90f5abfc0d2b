"""Command line of the launcher: what every container of the pipeline runs."""

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

from components.console import UserError, run_step
from components.console.number_types import FiniteFloatRange
from components.launcher.executor import numbers, parse_executor_input, write_executor_output
from components.storage.input_files import path_errors, read_json
from components.storage.uri import GsUri, mirror, parse_place


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Example (as KFP calls it):
  python -m components.launcher --executor-input '{{$}}' --copy report.html=/gcs/b/page.html \\
    evaluation --corpus gs://b/corpus ... --output gs://b/evaluation
""",
)
@click.option("--executor-input", default="{}", help="KFP's ExecutorInput, JSON: the placeholder {{$}}.")
@click.option("--time-limit-s", type=FiniteFloatRange(min=0, max=366 * 86400), default=0,
              help="Ends the step.  [default: never]")
@click.option("--copy", "copies", multiple=True, metavar="FILE=PATH",
              help="Copy FILE of the artifact at --output to PATH, for KFP's user interface.")
@click.option("--value", "values", multiple=True, metavar="FILE:KEY=PATH",
              help="Write one value of a JSON file of that artifact to PATH: an output parameter.")
@click.option("--metrics", multiple=True, metavar="FILE=NAME",
              help="The numbers in a JSON file of that artifact become the metadata of the output NAME.")
@click.option("--work", default="", metavar="NAME",
              help="The output NAME is a directory that the step goes on in when it is run again. For runners.")
@click.option("--extends", default="", metavar="OPTIONS",
              help="Options of the step, with commas, that may change when it goes on. For runners.")
@click.argument("step")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)  # fmt: skip
def main(
    executor_input: str,
    time_limit_s: float,
    copies: tuple[str, ...],
    values: tuple[str, ...],
    metrics: tuple[str, ...],
    work: str,
    extends: str,
    step: str,
    arguments: tuple[str, ...],
) -> int:
    """Run STEP with ARGUMENTS, then tell Kubeflow Pipelines what it made.

    An option with an empty value is left out: a pipeline's parameter that is empty means the step's own default.
    """
    kfp = parse_executor_input(executor_input)
    kept = without_empty(arguments)
    status = _run(step, kept, time_limit_s)
    if status != 0:
        return status
    directory = _output_of(kept)
    for copy in copies:
        file, path = _pair(copy)
        _parent(path)
        with path_errors(directory / file, "see what the step said"):
            shutil.copyfile(directory / file, path)
    for value in values:
        source, path = _pair(value)
        file, _colon, key = source.partition(":")
        _parent(path).write_text(str(_value(directory / file, key)), encoding="utf-8")
    metadata: dict[str, dict[str, Any]] = {}
    for metric in metrics:
        file, name = _pair(metric)
        metadata[name] = dict(numbers(_document(directory / file)))
    write_executor_output(kfp, metadata)
    return 0


def without_empty(arguments: Sequence[str]) -> list[str]:
    """The arguments without `--flag ''` and without the flag of `--flag false`; `--flag true` becomes `--flag`.

    KFP has no way to leave an argument out on a pipeline's parameter, and writes booleans in JSON.
    """
    kept: list[str] = []
    for argument in arguments:
        after_flag = bool(kept) and kept[-1].startswith("--")
        if after_flag and argument in ("", "false"):
            kept.pop()
        elif not (after_flag and argument == "true"):
            kept.append(argument)
    return kept


def _document(path: Path) -> dict[str, Any]:
    """The JSON object that a step wrote to `path`. UserError if it is none."""
    document = read_json(path, "see what the step said")
    if not isinstance(document, dict):
        raise UserError(f"{path} is not a JSON object", "see what the step said")
    return document


def _value(path: Path, key: str) -> Any:
    document = _document(path)
    if key not in document:
        raise UserError(f"{path} has no {key!r}", f"it has {', '.join(sorted(document)[:20])}")
    return document[key]


def _run(step: str, arguments: Sequence[str], time_limit_s: float) -> int:
    def ended(_number: int, _frame: FrameType | None) -> None:
        raise UserError(f"the step {step} took more than {time_limit_s:.0f} s", "raise its time limit in the pipeline")

    if not step.isidentifier() or find_spec(f"components.{step}") is None:
        raise UserError(f"there is no step {step!r}", "mlgo --help lists them")
    if time_limit_s:
        signal.signal(signal.SIGALRM, ended)
        signal.setitimer(signal.ITIMER_REAL, time_limit_s)
    sys.argv = [step, *arguments]
    try:
        runpy.run_module(f"components.{step}", run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return 0


def _output_of(arguments: Sequence[str]) -> Path:
    """The local directory of the artifact at --output."""
    for flag, value in itertools.pairwise(arguments):
        if flag == "--output":
            place = parse_place(value)
            return mirror(place) if isinstance(place, GsUri) else place
    return Path()


def _pair(text: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not (left and equals and right):
        raise UserError(f"{text!r} is not of the form FILE=PATH", "see --help")
    return left, right


def _parent(path: str) -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return Path(path)


if __name__ == "__main__":
    run_step(main)
