"""Removes from object storage what killed writers left: folders of files that no manifest names.

A writer uploads to PATH/data/<id>/ and names that folder in PATH/manifest.json last (components.storage.remote), so a
folder that no manifest names is either a live writer's, a reader's whose artifact was replaced a moment ago, or
abandoned. It counts as abandoned a day (`ABANDONED_AFTER_S`) after its last object and after the last change of the
manifest, by the server's time. From then on its writer uploads again instead of publishing it, so that nothing that is
removed here can become an artifact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from components.console import UserError, say
from components.storage.gcs import bucket_of, explained, request, server_time
from components.storage.manifest import MANIFEST
from components.storage.remote import ABANDONED_AFTER_S, DATA_ID, look
from components.storage.uri import GsUri

_OBJECT = re.compile(rf"(?P<artifact>.+?)/(?P<data>data/{DATA_ID})/(?P<name>.+)", re.DOTALL)
_NESTED = re.compile(rf"(^|/)data/{DATA_ID}/")


@dataclass
class AbandonedFolder:
    """A writer's folder that no manifest names.

    Attributes:
        artifact: what the writer meant to publish. data: the folder below it.
        generations: name in the bucket -> generation of each object.
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
        place: its path may be empty: the whole bucket.
        dry_run: only yield them.
        older_than_s: their age, at least `ABANDONED_AFTER_S`: younger ones may have a live writer.

    Raises:
        UserError: object storage refuses or does not answer.
    """
    assert older_than_s >= ABANDONED_AFTER_S
    before = server_time(place) - timedelta(seconds=older_than_s)  # what changes after this only seems younger
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
    with explained(place):
        prefix = f"{place.path}/" if place.path else None
        for blob in bucket_of(place).list_blobs(prefix=prefix, **request()):
            if (match := _OBJECT.fullmatch(blob.name)) is None:
                continue
            key = (match["artifact"], match["data"])
            folder = folders.setdefault(key, AbandonedFolder(GsUri(place.bucket, key[0]), key[1]))
            folder.size_bytes += int(blob.size or 0)
            folder.generations[blob.name] = int(blob.generation)
            if blob.updated >= before or _NESTED.search(match["name"]):  # an artifact within an artifact: not ours
                kept.add(key)
    for key, folder in folders.items():
        if key not in kept:
            yield folder


def _may_be_read(folder: AbandonedFolder, before: datetime) -> bool:
    """Whether the artifact's manifest names the folder, or is so new that somebody may read what it named before.

    A manifest that cannot be read is taken to name it.
    """
    try:
        if look(folder.artifact).data == folder.data:
            return True
    except UserError as error:
        say(f"warning: {folder.uri} is left alone: {error.problem}")
        return True
    with explained(folder.uri):
        manifest = bucket_of(folder.artifact).get_blob((folder.artifact / MANIFEST).path, **request())
    return manifest is not None and bool(manifest.updated >= before)


def _remove(folder: AbandonedFolder) -> None:
    from google.api_core.exceptions import NotFound, PreconditionFailed

    bucket = bucket_of(folder.artifact)
    with explained(folder.uri, missing=False):
        for name, generation in folder.generations.items():
            with suppress(NotFound, PreconditionFailed):  # another sweep was here, or an attempt without an answer
                bucket.blob(name).delete(if_generation_match=generation, **request())
