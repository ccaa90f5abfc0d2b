"""Removes what killed writers left in object storage: folders of files that no manifest names.

A writer uploads to PATH/data/<id>/ and names that folder in PATH/manifest.json last (remote.py). So a folder that no
manifest names belongs to a live writer, or to a reader whose artifact was just replaced, or is abandoned. It counts as
abandoned one day (`ABANDONED_AFTER_S`) after its last object and after the last change of the manifest, by the
server's clock. From then on its writer uploads again instead of publishing it, so that nothing that is removed here
can become part of an artifact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from components.core.console import UserError, say
from components.core.storage.gcs import bucket_of, request_options, server_time, translate_gcs_errors
from components.core.storage.manifest import MANIFEST
from components.core.storage.remote import ABANDONED_AFTER_S, DATA_ID, read_remote_manifest
from components.core.storage.uri import GsUri

_OBJECT = re.compile(rf"(?P<artifact>.+?)/(?P<data>data/{DATA_ID})/(?P<name>.+)", re.DOTALL)
_NESTED = re.compile(rf"(^|/)data/{DATA_ID}/")


@dataclass
class AbandonedFolder:
    """A writer's folder that no manifest names.

    Attributes:
        artifact: what the writer meant to publish.
        data: the folder, relative to `artifact`.
        size_bytes: total size of its objects.
        generations: object name in the bucket -> generation.
    """

    artifact: GsUri
    data: str
    size_bytes: int = 0
    generations: dict[str, int] = field(default_factory=dict)

    @property
    def uri(self) -> GsUri:
        return self.artifact / self.data


def sweep(place: GsUri, dry_run: bool = False, older_than_s: float = ABANDONED_AFTER_S) -> Iterator[AbandonedFolder]:
    """Remove the abandoned folders of the artifacts at and below `place`, and yield each.

    Args:
        place: an empty path means the whole bucket.
        dry_run: yield them without removing them.
        older_than_s: minimum age, at least `ABANDONED_AFTER_S`: younger folders may have a live writer.

    Raises:
        UserError: object storage refuses or does not answer.
    """
    assert older_than_s >= ABANDONED_AFTER_S
    before = server_time(place) - timedelta(seconds=older_than_s)  # read first: later changes only look younger
    for folder in _folders_unchanged_since(before, place):
        if _may_be_read(folder, before):
            continue
        if not dry_run:
            _remove(folder)
        yield folder


def _folders_unchanged_since(before: datetime, place: GsUri) -> Iterator[AbandonedFolder]:
    """Yield writers' folders below `place` whose objects are all older than `before`."""
    folders: dict[tuple[str, str], AbandonedFolder] = {}
    kept: set[tuple[str, str]] = set()
    with translate_gcs_errors(place):
        prefix = f"{place.path}/" if place.path else None
        for blob in bucket_of(place).list_blobs(prefix=prefix, **request_options()):
            if (match := _OBJECT.fullmatch(blob.name)) is None:
                continue
            key = (match["artifact"], match["data"])
            folder = folders.setdefault(key, AbandonedFolder(GsUri(place.bucket, key[0]), key[1]))
            folder.size_bytes += int(blob.size or 0)
            folder.generations[blob.name] = int(blob.generation)
            if blob.updated >= before or _NESTED.search(match["name"]):  # contains an artifact: not a writer's folder
                kept.add(key)
    for key, folder in folders.items():
        if key not in kept:
            yield folder


def _may_be_read(folder: AbandonedFolder, before: datetime) -> bool:
    """Return whether the manifest names the folder, or changed so recently that a reader may use what it named before.

    An unreadable manifest is assumed to name the folder.
    """
    try:
        if read_remote_manifest(folder.artifact).data == folder.data:
            return True
    except UserError as error:
        say(f"warning: keeping {folder.uri}: {error.problem}")
        return True
    with translate_gcs_errors(folder.uri):
        manifest = bucket_of(folder.artifact).get_blob((folder.artifact / MANIFEST).path, **request_options())
    return manifest is not None and bool(manifest.updated >= before)


def _remove(folder: AbandonedFolder) -> None:
    from google.api_core.exceptions import NotFound, PreconditionFailed

    bucket = bucket_of(folder.artifact)
    with translate_gcs_errors(folder.uri, missing=False):
        for name, generation in folder.generations.items():
            with suppress(NotFound, PreconditionFailed):  # removed by another sweep, or the answer was lost
                bucket.blob(name).delete(if_generation_match=generation, **request_options())
