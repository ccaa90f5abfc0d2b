"""Removes what trainings and searches that have ended leave in object storage, and nobody else removes.

    ROOT/latest.json, ROOT/checkpoints/, ROOT/tensorboard/, ROOT/state/    the work of a training or a search
    POLICY.step                         the lease by which a pipeline's step followed a RayJob
    NAME.condition-XXXXXXXX             an object by which a killed process checked the conditions of writes

The work of a run is removed if its lease says that it was released after its result was published, and that result is
still there. The document is replaced first, on the condition that it has not changed, by one without checkpoints: a run
that takes the lease meanwhile starts from the beginning, with names of its own, of which nothing is removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.object_storage.object_store import StoredObject
from components.platform.storage.object_storage.remote import ABANDONED_AFTER_S, read_remote_manifest
from components.platform.storage.object_storage.stores import server_time, store_of
from components.platform.storage.object_storage.sweep import SweptObjects, remove_objects
from components.platform.storage.shared_state.published_work import PUBLISHED, published_result
from components.platform.storage.shared_state.root_lease import LATEST
from components.platform.storage.shared_state.versioned_json import Conflict, read_versioned, write_versioned
from components.platform.storage.uri import ObjectUri

_WORK = ("checkpoints", "state", "tensorboard")
"""Folders of a training or a search, which its result does not need."""
_PROBE = re.compile(r".+\.condition-[0-9a-f]{8}", re.DOTALL)
_PROBE_BYTES = len(b"probe")
_STEP = ".step"


def sweep_finished(
    folder: ObjectUri, dry_run: bool = False, older_than_s: float = ABANDONED_AFTER_S
) -> Iterator[SweptObjects]:
    """Remove what ended runs left below `folder`, and yield it.

    Args:
        older_than_s: minimum age of each object by the server's clock.

    Raises:
        UserError: object storage refuses or does not answer.
    """
    before = server_time(folder) - timedelta(seconds=older_than_s)  # read first: later changes only look younger
    present = store_of(folder).objects(folder)
    for stored in present:
        if not _is_older(stored, before):
            continue
        uri = replace(folder, path=stored.name)
        if stored.name.endswith(f"/{LATEST}"):
            leftover = _work_of_ended_run(uri, present, before)
        elif stored.name.endswith(_STEP):
            leftover = _lease_of_ended_step(uri, stored)
        elif _PROBE.fullmatch(stored.name) and stored.size_bytes == _PROBE_BYTES:
            leftover = SweptObjects(uri, "check of conditional writes")
            leftover.add(stored)
        else:
            continue
        if leftover is not None and (dry_run or _remove(leftover)):
            yield leftover


def _is_older(stored: StoredObject, before: datetime) -> bool:
    return stored.updated is not None and stored.updated < before


def _work_of_ended_run(lease: ObjectUri, present: Sequence[StoredObject], before: datetime) -> SweptObjects | None:
    root = replace(lease, path=lease.path.removesuffix(f"/{LATEST}"))
    document = _read_document(lease)
    result = published_result(document)
    if result is None or not _is_published(result, root):
        return None
    prefixes = tuple(f"{root.path}/{name}/" for name in _WORK)
    leftover = SweptObjects(root, f"work of the run that made {result}")
    for stored in present:
        if stored.name == lease.path:
            leftover.add(stored)
        elif stored.name.startswith(prefixes):
            if not _is_older(stored, before):
                return None
            leftover.add(stored)
    return leftover


def _lease_of_ended_step(uri: ObjectUri, stored: StoredObject) -> SweptObjects | None:
    policy = replace(uri, path=uri.path.removesuffix(_STEP))
    if not policy.path or policy.path.endswith("/") or "step" not in _read_document(uri):
        return None  # an object of another tool
    if not _is_published(policy, uri):
        return None
    leftover = SweptObjects(uri, f"lease of the step that made {policy}")
    leftover.add(stored)
    return leftover


def _read_document(uri: ObjectUri) -> Mapping[str, object]:
    try:
        document = json.loads(store_of(uri).read(uri)[0] or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _is_published(result: ObjectUri, leftover: ObjectUri) -> bool:
    try:
        if read_remote_manifest(result).version:
            return True
        say(f"keeping {leftover}: its result {result} is missing")
    except UserError as error:
        say(f"warning: keeping {leftover}: {error.problem}")
    return False


def _remove(leftover: SweptObjects) -> bool:
    """Remove the objects; return False if a run has taken the lease since."""
    lease = leftover.uri / LATEST
    if lease.path in leftover.versions:
        before = read_versioned(str(lease))
        if before.version != leftover.versions[lease.path]:
            return False
        kept = {name: value for name, value in (before.content or {}).items() if name in ("version", PUBLISHED)}
        try:
            emptied = write_versioned(str(lease), {**kept, "released": True, "checkpoints": []}, before)
        except Conflict:
            return False
        leftover.versions[lease.path] = emptied.version
    remove_objects(leftover, last=lease.path)
    return True
