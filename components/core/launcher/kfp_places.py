"""Places of artifacts under KFP: which ones a step reads and writes itself, and which ones KFP copies.

Steps read and write gs:// themselves. KFP's launcher copies artifacts at minio://, s3:// and oci:// from and to local
directories of the pod, with credentials that steps do not have; their URIs are replaced by kfp-local:// ones
(components.core.storage.kfp_local). The runners of `mlgo pipeline run` copy nothing: they set DIRECT_VARIABLE.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components.core.console import say
from components.core.storage.kfp_local import kfp_local_uri, local_directory
from components.core.storage.uri import ObjectUri, parse_place

DIRECT_VARIABLE = "MLGO_DIRECT_STORAGE"
"""Environment variable of a runner without KFP's launcher: steps read and write every URI themselves."""


def use_kfp_directories(arguments: Sequence[str], executor_input: Mapping[str, Any], work: str) -> list[str]:
    """Replace the URIs of artifacts that KFP copies by the places to which and from which it copies them.

    A working directory becomes a plain directory of the pod, because checkpoints would be uploaded only when the step
    has ended; a line in the log says that a lost pod starts again.

    Args:
        arguments: the step's, with KFP's placeholders filled in. Only URIs of the step's artifacts are replaced, not
            those in parameters: nobody copies these.
        executor_input: the parsed ExecutorInput.
        work: name of the output that is a working directory, "" for none.

    Raises:
        UserError: KFP gave an artifact a URI that cannot be a local path.
    """
    if os.environ.get(DIRECT_VARIABLE):
        return list(arguments)
    places = {}
    for name, uri in _artifact_uris(executor_input):
        place = kfp_local_uri(uri)
        if place == uri:
            continue
        local = parse_place(place)
        assert isinstance(local, ObjectUri)
        places[uri] = place
        if name == f"outputs {work}":
            places[uri] = str(local_directory(local))
            say(
                f"working directory {uri}: Kubeflow Pipelines uploads it only when the step has ended, so it is "
                f"{places[uri]} in this pod, and a step whose pod is lost starts again from the beginning; "
                "with --pipeline-root gs://BUCKET/PATH it resumes"
            )
    return [_replaced(argument, places) for argument in arguments]


def _artifact_uris(executor_input: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield ("inputs NAME" or "outputs NAME", URI) of each artifact of the task."""
    for direction in ("inputs", "outputs"):
        for name, listed in executor_input.get(direction, {}).get("artifacts", {}).items():
            for artifact in listed.get("artifacts", []):
                if uri := artifact.get("uri", ""):
                    yield f"{direction} {name}", uri


def _replaced(argument: str, places: Mapping[str, str]) -> str:
    for uri, place in places.items():
        if argument == uri or argument.startswith(f"{uri}/"):
            return place + argument.removeprefix(uri)
    return argument
