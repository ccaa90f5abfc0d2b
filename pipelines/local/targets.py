"""Checks, before the first step of a run, that every step may write where it will.

Otherwise a file that is in the way would end the run only when its step starts, which may be hours later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from components.platform.errors import UserError
from components.platform.storage.kinds import Kind
from components.platform.storage.manifest import list_names
from components.platform.storage.publish import require_publishable
from components.platform.storage.replaceable import enclosing_artifact, require_replaceable
from components.platform.storage.uri import ObjectUri, mirror, parse_location
from pipelines.local.locations import local_directory
from pipelines.local.step import RunLocations, Step
from pipelines.local.step_cache import StepRecords
from pipelines.parameters.parameter import FormatParameter
from pipelines.parameters.tables import BY_NAME, PLACES

_KINDS: dict[str, Kind] = {
    "training": "toolchain",
    "release": "toolchain",
    "sdk": "SDK",
    "corpus": "corpus",
    "trace": "trace",
    "vocab": "vocab",
    "warmstart": "policy",
    "policy": "policy",
    "release_policy": "policy",
    "evaluation": "evaluation",
    "release_report": "evaluation",
    "deployed_evaluation": "evaluation",
    "plan": "plan",
    "promotion": "promotion decision",
    "refusal": "promotion decision",
    "toolchain_checks": "smoke test",
    "training_checks": "smoke test",
    "ray_checks": "smoke test",
    "retry_checks": "smoke test",
    "table": "smoke test",
}
"""Name of the artifact that a step of our pipelines writes -> its kind. Steps of other pipelines may write any kind."""
_RUN_FOLDERS = (".steps", ".files", "logs")
_IGNORED = ("lost+found",)
"""What a file system creates in its root."""


def require_free_targets(steps: Sequence[Step], records: StepRecords) -> None:
    """Raise UserError if a run would write among files that no run made, or if something is where a step will write.

    A step that may be reused because its artifact is as it left it is not checked: it may not write at all.
    """
    run = records.run
    if artifact := enclosing_artifact(run / "logs"):
        raise UserError(f"{run} is or lies within {artifact}", "choose another --output")
    works = [step.work for step in steps if step.work]
    if run.is_dir() and not (run / ".steps").is_dir():
        ours = {*_RUN_FOLDERS, *works, *(step.output for step in steps), *_IGNORED}
        # A user may have redirected the output of this command to a log there.
        names = (name for name in os.listdir(run) if not name.startswith(".") and not name.endswith(".log"))
        if foreign := sorted(set(names) - ours):
            raise UserError(
                f"{run} is not the directory of an earlier run and is not empty: it has {list_names(foreign)}",
                "choose a new or an empty directory as --output",
            )
    folders = [run / name for name in _RUN_FOLDERS]
    folders += filter(None, (local_directory(records.locations.artifact(work)) for work in works))
    for folder in folders:
        if os.path.lexists(folder) and not folder.is_dir():
            raise UserError(f"{folder} exists and is not a directory", "remove it, or choose another --output")
    for step in steps:
        if step.output and not records.is_as_made(step):
            _require_target(records.locations.artifact(step.output), _KINDS.get(step.output))


def require_inputs_kept(
    parameters: Mapping[str, str],
    steps: Sequence[Step],
    locations: RunLocations,
    write: FormatParameter,
) -> None:
    """Raise UserError if a parameter names something that a step of the run would replace.

    Args:
        parameters: the pipeline's, as text.
        write: how messages write a parameter.
    """
    targets = [local_directory(locations.artifact(step.output)) for step in steps if step.output]
    for name in PLACES:
        value = parameters.get(name, "")
        source = local_directory(value) if value and value not in BY_NAME[name].words else None
        if source is None:
            continue
        for target in filter(None, targets):
            if Path(os.path.realpath(source)).is_relative_to(os.path.realpath(target)):
                raise UserError(
                    f"{write(name, value)} is in {target}, which this run would replace", "choose another --output"
                )


def _require_target(location: str, kind: Kind | None) -> None:
    parsed = parse_location(location)
    if not isinstance(parsed, ObjectUri):
        require_replaceable(parsed, kind)
    elif kind is not None:
        require_publishable(mirror(parsed), kind)
