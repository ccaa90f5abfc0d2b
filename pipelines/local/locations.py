"""Locations of a run's artifacts: local directories or URIs of object storage."""

from __future__ import annotations

from pathlib import Path

from components.platform.errors import UserError
from components.platform.storage import require_artifact
from components.platform.storage.manifest import NotAManifest, manifest_digest
from components.platform.storage.uri import ObjectUri, parse_location


def artifact_digest(location: str, verify_content: bool = False) -> str:
    """Return the digest of the artifact at `location`, "" if it is missing or damaged.

    Args:
        verify_content: whether every file of a local artifact is read and compared with its checksum.
    """
    parsed = parse_location(location)
    try:
        if isinstance(parsed, ObjectUri):
            from components.platform.storage.object_storage.remote import read_verified_manifest

            remote = read_verified_manifest(parsed)
            return manifest_digest(remote.files) if remote.version else ""
        return manifest_digest(require_artifact(parsed, "artifact", verify_content).files)
    except UserError as error:
        if isinstance(parsed, ObjectUri) and not isinstance(error, NotAManifest):
            raise  # no answer or no access does not mean that there is no artifact
        return ""


def artifact_root(pipeline_root: str, output: Path) -> str:
    """Return where a run writes its artifacts: a URI or an absolute path, `output` if `pipeline_root` is empty.

    Raises:
        UserError: `pipeline_root` is a URI of another scheme, or is not a valid location.
    """
    return absolute_place(pipeline_root) if pipeline_root else str(output.absolute())


def absolute_place(location: str) -> str:
    """Return a path as an absolute one, a URI as it is. UserError if it is not a valid location."""
    parsed = parse_location(location)
    return str(parsed) if isinstance(parsed, ObjectUri) else str(parsed.absolute())


def local_directory(location: str) -> Path | None:
    """Return `location` as a path, None if it is in object storage."""
    parsed = parse_location(location)
    return None if isinstance(parsed, ObjectUri) else parsed
