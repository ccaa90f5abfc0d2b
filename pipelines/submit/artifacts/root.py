"""The artifact root of a run on KFP: where steps read and write artifacts themselves, whatever KFP copies.

It is an option of the launcher in the command of each step (platform/launcher/kfp_locations.py), so a stored pipeline
and a schedule keep it, and KFP does not reuse the result of a run with another one.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from components.platform.errors import UserError
from components.platform.launcher.images import COMMAND
from components.platform.storage.uri import REMOTE_SCHEMES, USAGE, ObjectUri, parse_location
from pipelines.spec import containers, expect_pipeline

OPTION = "--artifact-root"


def check_artifact_root(root: str) -> None:
    """Raise UserError unless `root` is a folder that steps on a server can read and write themselves."""
    location = parse_location(root) if root.partition("://")[0] in REMOTE_SCHEMES else None
    if not isinstance(location, ObjectUri) or "?" in root:
        raise UserError(f"{OPTION} {root} is no folder in object storage that steps read themselves", f"pass {USAGE}")


@expect_pipeline
def with_artifact_root(spec: Mapping[str, Any], root: str) -> dict[str, Any]:
    """Return a copy of a PipelineSpec whose steps read and write artifacts below `root`.

    Raises:
        UserError: the pipeline has no such step.
    """
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    ours = [container for _label, container in containers(copy) if tuple(container.get("command", ())) == COMMAND]
    for container in ours:
        container["args"] = [OPTION, root, *container["args"]]
    if not ours:
        raise UserError("no step of the pipeline reads and writes artifacts itself", f"leave {OPTION} out")
    return copy


def artifact_root_of(spec: Mapping[str, Any]) -> str:
    """Return the artifact root of the steps of a PipelineSpec, as a server has it; "" without one."""
    try:
        for _label, container in containers(spec):
            for flag, value in itertools.pairwise(container.get("args") or ()):
                if flag == OPTION and isinstance(value, str):
                    return value
    except (AttributeError, KeyError, TypeError):  # no pipeline of ours
        pass
    return ""
