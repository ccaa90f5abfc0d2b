"""Restricts what a step replaces to artifacts of the kind that it makes."""

from __future__ import annotations

import os
from pathlib import Path

from components.platform.errors import UserError
from components.platform.storage.inputs import CONTAINS, command_inputs
from components.platform.storage.kinds import describe_kind
from components.platform.storage.manifest import MANIFEST, Manifest, list_names, read_manifest, unlisted_files
from components.platform.storage.uri import display_path

_REMEDY = "choose another --output"


def require_replaceable(output: Path, kind: str | None) -> None:
    """Raise UserError unless an artifact of this kind, None for any, may be put at `output`, an absolute path.

    It may where nothing or an empty directory is, and where an artifact of this kind is, of which every file is in the
    manifest. Never where an input of the running command or another artifact would be changed.
    """
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise UserError(f"{output} exists and is not a directory", f"remove it, or {_REMEDY}")
    require_apart(output, _REMEDY)
    if not output.is_dir():
        return
    if os.path.ismount(output):
        raise UserError(
            f"{output} is a mount point, which cannot be replaced as a whole", f"use a directory in it: {output}/NAME"
        )
    if not any(output.iterdir()):
        return
    manifest = _artifact(output)
    remedy = f"{_REMEDY}, or remove the directory if you do not need it"
    if manifest is None:
        why = f"its {MANIFEST} is not one of ours" if (output / MANIFEST).exists() else f"it has no {MANIFEST}"
        raise UserError(f"{output} is not empty and was not made by this program: {why}", remedy)
    if kind is None:
        kind = manifest.kind
    elif manifest.kind != kind:
        raise UserError(
            f"{output} is {describe_kind(manifest.kind)}, and would be replaced by {describe_kind(kind)}", remedy
        )
    if unlisted := unlisted_files(manifest):
        problem = f"{output} has files that are not part of the {kind} and would be lost: {list_names(unlisted)}"
        raise UserError(problem, f"move them elsewhere, or {_REMEDY}")


def require_apart(target: Path, remedy: str, may_contain_inputs: bool = False) -> None:
    """Raise UserError if writing to `target` changes an input of the running command, or an artifact around it.

    Args:
        may_contain_inputs: whether inputs may lie in `target`, which is not replaced.
    """
    inputs = command_inputs()
    overlap = inputs.overlap(target) if inputs is not None else ""
    if overlap and not (may_contain_inputs and overlap.startswith(CONTAINS)):
        raise UserError(f"{display_path(target)} {overlap}, which would change while it is read", remedy)
    if artifact := enclosing_artifact(target):
        raise UserError(f"{target} lies within {artifact}", remedy)


def enclosing_artifact(path: Path) -> str:
    """Return the kind and the directory of the artifact that `path` lies within, "" if there is none."""
    for parent in Path(os.path.realpath(path)).parents:
        if manifest := _artifact(parent):
            return f"{describe_kind(manifest.kind)}, {parent}"
    return ""


def _artifact(directory: Path) -> Manifest | None:
    """Return the manifest of an artifact; None if the directory is none."""
    try:
        return read_manifest(directory) if os.path.lexists(directory / MANIFEST) else None
    except UserError:
        return None
