"""What stands in object storage, brought to its mirror on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from components.console import UserError, say
from components.storage.directory import make_directory
from components.storage.manifest import MANIFEST, require_artifact
from components.storage.publish import put
from components.storage.uri import GsUri, mirror
from components.storage.workdir import download_file, listing


def fetch(uri: GsUri, place: Path | None = None) -> Path:
    """Downloads the artifact at `uri` to `place`, by default its mirror, unless it is there already; returns that path.

    Raises:
        UserError: there is none, it is damaged, or object storage refuses or does not answer.
    """
    from components.storage.remote import download, look

    remote = look(uri)
    if remote.generation == 0:
        raise UserError(
            f"{uri} is no finished artifact: it has no {MANIFEST}",
            "check the URI; if the step that makes it was interrupted, run that step again",
        )
    place = place or mirror(uri)
    if not _holds(place, remote.files):
        make_directory(place.parent)
        with put(place) as partial:
            remote = download(remote, partial.directory)
            partial.files = remote.files
        say(f"{uri}: {len(remote.files)} files, {sum(entry.size_bytes for entry in remote.files) / 1e6:.1f} MB")
    return place


def fetch_file(uri: GsUri) -> Path:
    """Downloads a single object, a recipe for example; returns its mirror. UserError as `fetch`."""
    place = mirror(uri)
    download_file(uri, place)
    return place


def fetch_tree(uri: GsUri) -> Path:
    """As `fetch`, but a place without a manifest is taken for a folder that another tool filled, and brought whole."""
    from components.storage.remote import download_folder, look

    if look(uri).generation:
        return fetch(uri)
    place = mirror(uri)
    make_directory(place.parent)
    shutil.rmtree(place, ignore_errors=True)  # of an earlier time; whether it is still the same, nothing tells
    with put(place) as partial:
        if not download_folder(uri, partial.directory):
            raise UserError(f"there is nothing at {uri}", "check the URI")
    (place / MANIFEST).unlink()  # nobody vouched for what was there
    return place


def fetch_loose(uri: GsUri) -> Path:
    """Downloads what lies below `uri` outside of artifacts, as TensorBoard's events do beside a training's checkpoints.

    Returns a directory beside the mirror of `uri`: in the mirror the training itself may be at work.
    """
    from components.storage.remote import inside

    place = mirror(uri).parent / "loose"
    shutil.rmtree(place, ignore_errors=True)  # of an earlier time
    names = list(listing(mirror(uri)))
    artifacts = tuple(f"{Path(name).parent}/" for name in names if Path(name).name == MANIFEST)
    for name in names:
        if not name.startswith(artifacts):
            download_file(uri / name, Path(inside(place, name, uri)))
    return place


def _holds(place: Path, files: object) -> bool:
    try:
        return require_artifact(place, "artifact").files == files
    except UserError:
        return False
