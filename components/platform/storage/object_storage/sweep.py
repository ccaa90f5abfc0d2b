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
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.manifest import MANIFEST
from components.platform.storage.object_storage.object_store import StoredObject
from components.platform.storage.object_storage.remote import ABANDONED_AFTER_S, DATA_ID, read_remote_manifest
from components.platform.storage.object_storage.stores import server_time, store_of
from components.platform.storage.uri import ObjectUri

_OBJECT = re.compile(rf"(?P<folder>.+?/data/{DATA_ID})/(?P<name>.+)", re.DOTALL)
_NESTED = re.compile(rf"(^|/)data/{DATA_ID}/")


@dataclass
class SweptObjects:
    """Objects that a sweep removes.

    Attributes:
        uri: their folder, or the only object.
        what: describes them, where the URI does not.
        versions: object name in the bucket -> version.
    """

    uri: ObjectUri
    what: str = ""
    size_bytes: int = 0
    versions: dict[str, str] = field(default_factory=dict)

    def add(self, stored: StoredObject) -> None:
        self.size_bytes += stored.size_bytes
        self.versions[stored.name] = stored.version


def sweep(folder: ObjectUri, dry_run: bool = False, older_than_s: float = ABANDONED_AFTER_S) -> Iterator[SweptObjects]:
    """Remove the abandoned folders of the artifacts at and below `folder`, and yield each.

    Args:
        older_than_s: minimum age, at least `ABANDONED_AFTER_S`: younger folders may have a live writer.

    Raises:
        UserError: object storage refuses or does not answer.
    """
    assert older_than_s >= ABANDONED_AFTER_S
    before = server_time(folder) - timedelta(seconds=older_than_s)  # read first: later changes only look younger
    for abandoned in _folders_unchanged_since(before, folder):
        if _may_be_read(abandoned.uri, before):
            continue
        if not dry_run:
            remove_objects(abandoned)
        yield abandoned


def _folders_unchanged_since(before: datetime, root: ObjectUri) -> Iterator[SweptObjects]:
    """Yield writers' folders below `root` whose objects are all older than `before`."""
    folders: dict[str, SweptObjects] = {}
    still_used: set[str] = set()
    for stored in store_of(root).objects(root):
        if (match := _OBJECT.fullmatch(stored.name)) is None:
            continue
        path = match["folder"]
        folders.setdefault(path, SweptObjects(replace(root, path=path))).add(stored)
        young = stored.updated is None or stored.updated >= before
        if young or _NESTED.search(match["name"]):  # contains an artifact: not a writer's folder
            still_used.add(path)
    yield from (folder for path, folder in folders.items() if path not in still_used)


def _may_be_read(folder: ObjectUri, before: datetime) -> bool:
    """Return whether the manifest names the folder, or changed so recently that a reader may use what it named before.

    An unreadable manifest is assumed to name the folder.
    """
    path, data, writer = folder.path.rsplit("/", 2)
    artifact = replace(folder, path=path)
    try:
        if read_remote_manifest(artifact).data == f"{data}/{writer}":
            return True
    except UserError as error:
        say(f"warning: keeping {folder}: {error.problem}")
        return True
    manifest = store_of(artifact).head(artifact / MANIFEST)
    return manifest is not None and (manifest.updated is None or manifest.updated >= before)


def remove_objects(swept: SweptObjects, last: str = "") -> None:
    """Remove objects, manifests first: no reader finds an artifact without its files.

    Args:
        last: name of an object that is removed after the others, so that a killed sweep is continued by the next one.
    """
    store = store_of(swept.uri)
    for name in sorted(swept.versions, key=lambda name: (name == last, not name.endswith(f"/{MANIFEST}"))):
        store.delete(replace(swept.uri, path=name), swept.versions[name])
