"""Downloads from object storage into local mirrors, one per version, each kept while a process reads it.

    $MLGO_CACHE_DIR/SCHEME/BUCKET/PATH.../@<version>/NAME

<version> is a digest of what was found (of an artifact's manifest, or of an object's version), so that another process
that fetches a newer version stores it next to this one, not in its place. A reading process holds a shared lock on the
directory @<version> until it ends, so that the returned paths do not change; mirrors of other versions that nobody
holds are removed when the next version is fetched. Before its first download a process also removes mirrors of other
artifacts, those used least recently, until all mirrors have at most $MLGO_CACHE_GB.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from components.platform.console import say
from components.platform.console.number_types import environment_number
from components.platform.errors import UserError
from components.platform.storage.cache import default_cache_dir
from components.platform.storage.directory import empty, make_directory
from components.platform.storage.manifest import MANIFEST, ManifestEntry, manifest_digest, require_artifact
from components.platform.storage.object_storage.object_store import ObjectMissing
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.publish import publish_local
from components.platform.storage.shared_state.stale_directories import evict, is_at, lock_shared, remove_unused
from components.platform.storage.shared_state.workdir import download_file
from components.platform.storage.uri import SCHEMES, ObjectUri, concurrent_modification_error, mirror

CACHE_GB = "MLGO_CACHE_GB"
"""Environment variable: size of the mirrors of versions, in GB, that a process leaves before its first download."""
DEFAULT_CACHE_GB = 50.0
DIGITS = 32
"""Hexadecimal digits of the digest in a directory's name."""
_held: dict[Path, int] = {}
"""Directory -> descriptor that holds its lock until this process ends."""
_guard = threading.Lock()
_limited: set[Path] = set()
"""Caches that this process has limited."""
_VERSION = re.compile(r"@[0-9a-f]+")
_ATTEMPTS = 5
"""To read an artifact that others replace meanwhile."""
_verified: set[Path] = set()
"""Mirrors that this process has downloaded, or compared with their checksums: a cache's files are damaged as others."""


def fetch(uri: ObjectUri, directory: Path | None = None) -> Path:
    """Download the artifact at `uri` unless it is already here; return the path of its mirror, or `directory`.

    Raises:
        UserError: there is none, it is damaged, or object storage refuses or does not answer.
    """
    from components.platform.storage.object_storage.remote import (
        ReplacedDuringDownload,
        download,
        download_version,
        read_remote_manifest,
    )

    remote = read_remote_manifest(uri)
    for _attempt in range(_ATTEMPTS):
        if not remote.version:
            raise UserError(
                f"{uri} is not a finished artifact: it has no {MANIFEST}",
                "check the URI; if the step that makes it was interrupted, run that step again",
            )
        target = directory or hold_version(uri, manifest_digest(remote.files))
        if _holds(target, remote.files):
            _verified.add(target)
            return target
        limit_cache()
        make_directory(target.parent)
        try:
            # A mirror is this program's, whatever is in it, as for `publish`.
            replace_anything = directory is None or directory == mirror(uri)
            with publish_local(target, remote.kind, replace_anything=replace_anything) as partial:
                if directory is not None:
                    remote = download(remote, partial.directory)
                elif not _link_published(uri, remote.files, partial.directory):
                    download_version(remote, partial.directory)
                partial.files = remote.files
        except ReplacedDuringDownload as replaced:
            say(f"{uri} was replaced while it was read; reading the new version")
            remote = replaced.by
            continue
        _verified.add(target)
        say(f"{uri}: {len(remote.files)} files, {sum(entry.size_bytes for entry in remote.files) / 1e6:.1f} MB")
        return target
    raise concurrent_modification_error(uri)


def fetch_file(uri: ObjectUri) -> Path:
    """Download a single object, for example a recipe; return its mirror. UserError as `fetch`."""
    for _attempt in range(_ATTEMPTS):
        remote_file = store_of(uri).head(uri)
        if remote_file is None:
            raise UserError(f"there is no object {uri}", "check the URI")
        path = hold_version(uri, hashlib.sha256(remote_file.version.encode()).hexdigest())
        if path.is_file():
            return path
        limit_cache()
        try:
            download_file(uri, path, remote_file.version)
        except ObjectMissing:
            continue  # replaced between the two requests
        return path
    raise concurrent_modification_error(uri)


def fetch_tree(uri: ObjectUri) -> Path:
    """Fetch an artifact, or all objects of a folder without a manifest, which another tool filled."""
    from components.platform.storage.object_storage.remote import download_folder, list_folder, read_remote_manifest

    if read_remote_manifest(uri).version:
        return fetch(uri)
    for _attempt in range(_ATTEMPTS):
        folder = list_folder(uri)
        if not folder:
            raise UserError(f"there is nothing at {uri}", "check the URI")
        directory = hold_version(uri, _digest(folder))
        if directory.is_dir():
            return directory
        limit_cache()
        with suppress(_Changed), publish_local(directory, "", replace_anything=True) as partial:
            partial.has_manifest = False
            download_folder(uri, folder, partial.directory)
            if list_folder(uri) != folder:
                raise _Changed
        if directory.is_dir():
            return directory
    raise concurrent_modification_error(uri)


class _Changed(Exception):
    """The folder changed between its listing and its download."""


def fetch_files_outside_artifacts(uri: ObjectUri) -> Path:
    """Download the files below `uri` that belong to no artifact, such as TensorBoard events next to checkpoints.

    Returns a separate mirror: a training may be writing to the mirror of `uri`.
    """
    from components.platform.storage.object_storage.remote import download_folder, list_folder

    folder = list_folder(uri)
    artifacts = tuple(f"{Path(name).parent}/" for name in folder if Path(name).name == MANIFEST)
    unmanaged = {name: version for name, version in folder.items() if not name.startswith(artifacts)}
    directory = hold_version(uri, _digest(unmanaged | {"": ("", 0)}))  # differs from the mirror of `fetch_tree`
    if not directory.is_dir():
        with publish_local(directory, "", replace_anything=True) as partial:
            partial.has_manifest = False
            download_folder(uri, unmanaged, partial.directory)
    return directory


def _holds(directory: Path, files: Sequence[ManifestEntry]) -> bool:
    """Return whether these files are there, with their checksums unless this process has compared them before."""
    try:
        return require_artifact(directory, "artifact", verify_content=directory not in _verified).files == files
    except UserError:
        return False


def _link_published(uri: ObjectUri, files: Sequence[ManifestEntry], into: Path) -> bool:
    """Hard-link this machine's own publication at `uri` into `into` if it is this version; return whether it is."""
    try:
        descriptor = os.open(mirror(uri), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        # By descriptor: another process may exchange the directory meanwhile and remove this one.
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


def _digest(folder: Mapping[str, tuple[str, int]]) -> str:
    return hashlib.sha256(repr(sorted(folder.items())).encode()).hexdigest()


def hold_version(uri: ObjectUri, version: str) -> Path:
    """Return the mirror of one version of the content at `uri`, locked until this process ends.

    The path need not exist; its directory does. Removes mirrors of other versions that no process holds.

    Args:
        version: hexadecimal digits; only the first `DIGITS` are used.

    Raises:
        UserError: the cache is not writable.
    """
    version_mirror = mirror(uri, version[:DIGITS])
    folder = version_mirror.parent
    with _guard:
        if folder in _held and not is_at(_held[folder], folder):  # the cache was emptied
            os.close(_held.pop(folder))
        while folder not in _held:
            make_directory(folder)
            if (lock := lock_shared(folder)) is not None:
                _held[folder] = lock
                with suppress(OSError):
                    os.utime(folder)  # used now, see limit_cache
    for other in (*folder.parent.glob("@?*"), *folder.parent.glob(".@*.gone-*")):
        if other != folder:
            remove_unused(other)
    return version_mirror


def limit_cache() -> None:
    """Remove mirrors of versions that no process holds, once per process, until all have at most $MLGO_CACHE_GB."""
    cache = default_cache_dir()
    with _guard:
        if cache in _limited:
            return
        _limited.add(cache)
    evict(_versions(cache), environment_number(CACHE_GB, DEFAULT_CACHE_GB) * 1e9)


def _versions(cache: Path) -> list[Path]:
    """Return the directories of versions below the cache, in use or not."""
    found = []
    for scheme in SCHEMES:
        for path, folders, _files in os.walk(cache / scheme):
            found += [Path(path, folder) for folder in folders if _VERSION.fullmatch(folder)]
            folders[:] = [folder for folder in folders if not folder.startswith("@")]
    return found
