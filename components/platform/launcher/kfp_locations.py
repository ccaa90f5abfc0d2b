"""Places of artifacts under KFP: which ones a step reads and writes itself, and which ones KFP copies.

Steps read and write gs:// themselves. KFP's launcher copies artifacts at minio://, s3:// and oci:// from and to local
directories of the pod, with credentials that steps do not have; their URIs are replaced by kfp-local:// ones
(platform/storage/object_storage/kfp_local.py). The runners of `mlgo pipeline run` copy nothing: they set
DIRECT_VARIABLE.

With an artifact root (`mlgo pipeline submit --artifact-root`) steps read and write their artifacts below that one
instead, whatever KFP's own root is. Its URIs cannot be changed: KFP's launcher fails a task that reports an output
outside of the pipeline root (KeyFromURI in launcher_v2.go), or has an input with a scheme that it does not know. So KFP
keeps its own URI, at which there is nothing: its launcher skips an output without a local directory, and downloads no
objects. The location is metadata of the artifact (LOCATION), which KFP passes to the steps that read it, also if it
reuses the artifact.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.object_storage.kfp_local import kfp_local_uri, local_directory
from components.platform.storage.uri import KFP_LOCAL, REMOTE_SCHEMES, ObjectUri, parse_location

DIRECT_VARIABLE = "MLGO_DIRECT_STORAGE"
"""Environment variable of a runner without KFP's launcher: steps read and write every URI themselves."""
LOCATION = "location"
"""Metadata of an artifact that KFP does not copy: the URI in object storage that steps read and write."""
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""Name of a folder that KFP makes for a run or for an attempt of a task."""
_BELOW_ROOT = re.compile(rf"[^/]+/{UUID}/[^/]+(?:/{UUID})?/[^/]+$")
"""PIPELINE/RUN_ID/TASK/UUID/ARTIFACT, the end of the URI that KFP's driver gives to an artifact."""


def resolve_locations(
    arguments: Sequence[str], executor_input: Mapping[str, Any], work: str, artifact_root: str = ""
) -> list[str]:
    """Replace the URIs of artifacts by the places at which the step reads and writes them.

    A working directory that KFP copies becomes a plain directory of the pod, because checkpoints would be uploaded only
    when the step has ended; a line in the log says that a lost pod starts again.

    Args:
        arguments: the step's, with KFP's placeholders filled in. Only URIs of the step's artifacts are replaced, not
            those in parameters: nobody copies these.
        work: name of the output that is a working directory, "" for none.
        artifact_root: URI below which the step writes its outputs; "" for where KFP wants them.

    Raises:
        UserError: KFP gave an artifact a URI that cannot be a local path.
    """
    if os.environ.get(DIRECT_VARIABLE):
        return list(arguments)
    locations = {}
    for artifact in _artifacts(executor_input, "inputs"):
        locations[artifact["uri"]] = _recorded_location(artifact) or kfp_local_uri(artifact["uri"])
    for artifact in _artifacts(executor_input, "outputs"):
        uri = artifact["uri"]
        locations[uri] = _location(uri, artifact_root) if artifact_root else kfp_local_uri(uri)
    if not artifact_root:
        for artifact in _artifacts(executor_input, "outputs", work):
            locations[artifact["uri"]] = _directory_of_pod(artifact["uri"])
    resolved = []
    for argument in arguments:
        uri = next((uri for uri in locations if _is_at(argument, uri)), "")
        resolved.append(locations[uri] + argument.removeprefix(uri) if uri else argument)
    return resolved


def locate_outputs(
    arguments: Sequence[str], executor_input: Mapping[str, Any], artifact_root: str
) -> dict[str, dict[str, str]]:
    """Return metadata with the location of each output that the step writes below the artifact root, by its name.

    Args:
        arguments: the step's, before `resolve_locations`. KFP copies outputs that they do not name: pages.
    """
    names = executor_input.get("outputs", {}).get("artifacts", {}) if artifact_root else {}
    return {
        name: {LOCATION: _location(artifact["uri"], artifact_root)}
        for name in names
        for artifact in _artifacts(executor_input, "outputs", name)
        if any(_is_at(argument, artifact["uri"]) for argument in arguments)
    }


def copied_bytes(executor_input: Mapping[str, Any], direction: str) -> int:
    """Return the bytes of the task's artifacts in directories that KFP copies: there are none of other artifacts.

    Args:
        direction: "inputs", or "outputs", which KFP copies when the step has ended.
    """
    total = 0
    for artifact in _artifacts(executor_input, direction):
        with suppress(UserError, OSError):
            place = parse_location(kfp_local_uri(artifact["uri"]))
            if isinstance(place, ObjectUri) and place.scheme == KFP_LOCAL:
                directory = local_directory(place)
                files = (Path(at, name) for at, _folders, names in os.walk(directory) for name in names)
                for file in [directory] if directory.is_file() else files:
                    with suppress(FileNotFoundError):  # a temporary one
                        total += file.lstat().st_size
    return total


def input_metadata(executor_input: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the metadata of each of the task's input artifacts that has any."""
    for artifact in _artifacts(executor_input, "inputs"):
        if isinstance(artifact.get("metadata"), Mapping):
            yield artifact["metadata"]


def _artifacts(
    executor_input: Mapping[str, Any], direction: str, name: str | None = None
) -> Iterator[Mapping[str, Any]]:
    """Yield the task's input or output artifacts that have a URI; all, or those of one name."""
    for key, listed in executor_input.get(direction, {}).get("artifacts", {}).items():
        if name in (None, key):
            yield from (artifact for artifact in listed.get("artifacts", []) if artifact.get("uri"))


def _recorded_location(artifact: Mapping[str, Any]) -> str:
    """Return the location in the metadata of an input, "" if KFP copies it or the step reads its URI."""
    metadata = artifact.get("metadata")
    location = metadata.get(LOCATION) if isinstance(metadata, Mapping) else None
    return location if isinstance(location, str) and location.partition("://")[0] in REMOTE_SCHEMES else ""


def _location(uri: str, artifact_root: str) -> str:
    """Return the place of an output below the artifact root: that of KFP's URI below the pipeline root."""
    match = _BELOW_ROOT.search(uri)
    return f"{artifact_root.rstrip('/')}/{match[0] if match else uri.partition('://')[2].strip('/')}"


def _directory_of_pod(uri: str) -> str:
    """Return the place of a working directory, a plain directory if KFP copies it."""
    local = parse_location(kfp_local_uri(uri))
    if not isinstance(local, ObjectUri) or str(local) == uri:
        return uri
    directory = str(local_directory(local))
    say(
        f"working directory {uri}: Kubeflow Pipelines uploads it only when the step has ended, so it is {directory} in "
        "this pod, and a step whose pod is lost starts again from the beginning; with --artifact-root "
        "s3://BUCKET/PATH or --pipeline-root gs://BUCKET/PATH it resumes"
    )
    return directory


def _is_at(argument: str, uri: str) -> bool:
    return argument == uri or argument.startswith(f"{uri}/")
