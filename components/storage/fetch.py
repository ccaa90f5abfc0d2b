"""What is in object storage, brought to a mirror on this machine.

Each returned path belongs to one version of what is there and stays as it is until this process ends
(components.storage.versions), whatever other processes fetch or publish meanwhile.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from components.console import UserError, say
from components.storage.directory import empty, make_directory
from components.storage.manifest import MANIFEST, ManifestEntry, manifest_digest, require_artifact
from components.storage.publish import put
from components.storage.uri import GsUri, keeps_changing, mirror
from components.storage.versions import hold_version
from components.storage.workdir import download_file

_ATTEMPTS = 5
"""To read what others replace meanwhile."""


def fetch(uri: GsUri, place: Path | None = None) -> Path:
    """Downloads the artifact at `uri`, unless it is here already; returns the path of its mirror, or `place`.

    Raises:
        UserError: there is none, it is damaged, or object storage refuses or does not answer.
    """
    from components.storage.remote import Replaced, download, download_version, look

    remote = look(uri)
    for _attempt in range(_ATTEMPTS):
        if remote.generation == 0:
            raise UserError(
                f"{uri} is no finished artifact: it has no {MANIFEST}",
                "check the URI; if the step that makes it was interrupted, run that step again",
            )
        target = place or hold_version(uri, manifest_digest(remote.files))
        if _holds(target, remote.files):
            return target
        make_directory(target.parent)
        try:
            with put(target, replace_anything=place is None) as partial:
                if place is not None:
                    remote = download(remote, partial.directory)
                elif not _link_published(uri, remote.files, partial.directory):
                    download_version(remote, partial.directory)
                partial.files = remote.files
        except Replaced as replaced:
            say(f"{uri} was replaced while it was read; reading what is there now")
            remote = replaced.by
            continue
        say(f"{uri}: {len(remote.files)} files, {sum(entry.size_bytes for entry in remote.files) / 1e6:.1f} MB")
        return target
    raise keeps_changing(uri)


def fetch_file(uri: GsUri) -> Path:
    """Downloads a single object, a recipe for example; returns its mirror. UserError as `fetch`."""
    from google.api_core.exceptions import NotFound, PreconditionFailed

    from components.storage.gcs import generation_of

    for _attempt in range(_ATTEMPTS):
        generation = generation_of(uri)
        if not generation:
            raise UserError(f"there is no object {uri}", "check the URI")
        place = hold_version(uri, f"{generation:x}")
        if place.is_file():
            return place
        try:
            download_file(uri, place, generation)
        except (NotFound, PreconditionFailed):
            continue  # replaced between the two requests
        return place
    raise keeps_changing(uri)


def fetch_tree(uri: GsUri) -> Path:
    """As `fetch`, but a place without a manifest is taken for a folder that another tool filled, and brought whole."""
    from components.storage.remote import download_folder, list_folder, look

    if look(uri).generation:
        return fetch(uri)
    for _attempt in range(_ATTEMPTS):
        folder = list_folder(uri)
        if not folder:
            raise UserError(f"there is nothing at {uri}", "check the URI")
        place = hold_version(uri, _digest(folder))
        if place.is_dir():
            return place
        with suppress(_Changed), put(place, replace_anything=True) as partial:
            partial.vouched = False
            download_folder(uri, folder, partial.directory)
            if list_folder(uri) != folder:
                raise _Changed
        if place.is_dir():
            return place
    raise keeps_changing(uri)


class _Changed(Exception):
    """What is being downloaded is not what was listed before."""


def fetch_loose(uri: GsUri) -> Path:
    """Downloads what lies below `uri` outside of artifacts, as TensorBoard's events do beside a training's checkpoints.

    Returns a mirror of its own: in that of `uri` the training itself may be at work.
    """
    from components.storage.remote import download_folder, list_folder

    folder = list_folder(uri)
    artifacts = tuple(f"{Path(name).parent}/" for name in folder if Path(name).name == MANIFEST)
    loose = {name: version for name, version in folder.items() if not name.startswith(artifacts)}
    place = hold_version(uri, _digest(loose | {"": (0, 0)}))  # never that of `fetch_tree`
    if not place.is_dir():
        with put(place, replace_anything=True) as partial:
            partial.vouched = False
            download_folder(uri, loose, partial.directory)
    return place


def _holds(place: Path, files: Sequence[ManifestEntry]) -> bool:
    try:
        return require_artifact(place, "artifact").files == files
    except UserError:
        return False


def _link_published(uri: GsUri, files: Sequence[ManifestEntry], into: Path) -> bool:
    """Fill `into` with hard links to what this machine published at `uri`, if that is this version; return whether."""
    try:
        descriptor = os.open(mirror(uri), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        # By its descriptor: another process may exchange the directory meanwhile, and remove this one.
        published = Path(f"/proc/self/fd/{descriptor}")
        if not _holds(published, files):
            return False
        for entry in files:
            target = into / entry.name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(published / entry.name, target, follow_symlinks=False)
        return True
    except OSError:
        empty(into)
        return False
    finally:
        os.close(descriptor)


def _digest(folder: Mapping[str, tuple[int, int]]) -> str:
    return hashlib.sha256(repr(sorted(folder.items())).encode()).hexdigest()
