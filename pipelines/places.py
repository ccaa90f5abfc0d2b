"""Artifacts of a run by where they are: a directory of this machine or a gs:// URI."""

from __future__ import annotations

from pathlib import Path

from components.console import UserError
from components.storage import digest, require_artifact
from components.storage.manifest import NotAManifest, manifest_digest
from components.storage.uri import GsUri, parse_place


def whole_digest(place: str) -> str:
    """The digest of the artifact at `place`, "" if there is none or it is damaged."""
    where = parse_place(place)
    try:
        if isinstance(where, GsUri):
            from components.storage.remote import look_whole

            remote = look_whole(where)
            return manifest_digest(remote.files) if remote.generation else ""
        require_artifact(where, where.name)
        return digest(where)
    except UserError as error:
        if isinstance(where, GsUri) and not isinstance(error, NotAManifest):
            raise  # no answer, no access: not the same as no artifact
        return ""


def root_of(pipeline_root: str, output: Path) -> str:
    """Where the artifacts of a run go: a gs:// URI or an absolute path, `output` if `pipeline_root` is empty.

    Raises:
        UserError: it is a URI of another scheme, or names no place.
    """
    where = parse_place(pipeline_root) if pipeline_root else output
    return str(where) if isinstance(where, GsUri) else str(where.absolute())


def local_directory(place: str) -> Path | None:
    """`place` as a path; None if it is in object storage."""
    where = parse_place(place)
    return None if isinstance(where, GsUri) else where
