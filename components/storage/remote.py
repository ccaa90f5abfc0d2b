"""Artifacts in object storage: published whole or not at all, checked when they are read.

    gs://BUCKET/PATH/manifest.json        as on a disk, and "data": the folder of its files; written last
    gs://BUCKET/PATH/data/<id>/<name>     the files; <id> is new for each writer
    gs://BUCKET/PATH/data/<id>/@packs/    small files together, where there are many (components.storage.packs)

Objects are whole when they appear, but an artifact is many. So each writer uploads to a folder of its own, and the
manifest, written under a generation precondition (it is still what the writer found when it began), decides: of
writers that race one wins, and no reader ever sees files of two. The folder of a writer that was killed stays behind;
a lifecycle rule on age that spares what manifests name is not possible, so `data/` of an artifact may hold one more.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.console import Progress, UserError, say
from components.storage.gcs import bucket_of, explained, read_object, request
from components.storage.input_files import parse_json
from components.storage.manifest import (
    MANIFEST,
    Manifest,
    ManifestEntry,
    describe,
    manifest_digest,
    manifest_document,
    parse_manifest,
)
from components.storage.packs import Pack, plan, unpack
from components.storage.packs import parse as parse_packs
from components.storage.packs import write as write_pack
from components.storage.uri import GsUri

WORKERS = 8  # what the connection pool of the client holds without warnings, with some to spare
_BATCH = 64  # files between two looks at the progress
_ATTEMPTS = 5  # at what is replaced while it is read
_SHOW_FROM = 100  # files; fewer are moved before a progress line would appear


@dataclass(frozen=True)
class RemoteManifest:
    """What stands at `uri`. generation: of the manifest object, 0 if there is none (and then no files). packs: what
    files lie in them are no objects of their own."""

    uri: GsUri
    generation: int = 0
    data: str = ""
    files: tuple[ManifestEntry, ...] = ()
    packs: tuple[Pack, ...] = ()

    @property
    def packed(self) -> frozenset[str]:
        """Names of the files in packs."""
        return frozenset(name for pack in self.packs for name in pack.offsets)


def look(uri: GsUri) -> RemoteManifest:
    """The manifest at `uri`, or one of generation 0. UserError: no bucket, access or answer, or no manifest of ours."""
    text, generation = read_object(uri / MANIFEST)
    if text is None:
        return RemoteManifest(uri)
    document = parse_json(text, str(uri / MANIFEST), "delete it and make the artifact again")
    files = parse_manifest(document, str(uri / MANIFEST))
    packs = parse_packs(document, str(uri / MANIFEST))
    return RemoteManifest(uri, generation, str(document.get("data", "")), files, packs)


class _Damaged(UserError):
    """Objects are not what the manifest says: it is damaged, or was replaced since the manifest was read."""


def look_whole(uri: GsUri) -> RemoteManifest:
    """As `look`, but of generation 0 also where files of the artifact are missing or differ."""
    for _attempt in range(_ATTEMPTS):
        remote = look(uri)
        if not remote.generation or is_whole(remote):
            return remote
        if look(uri).generation == remote.generation:
            return RemoteManifest(uri)
    raise _changes_all_the_time(uri)


def is_whole(remote: RemoteManifest) -> bool:
    """Whether every file that the manifest names is there with its size and checksum, by a listing."""
    with explained(remote.uri):
        data = (remote.uri / remote.data).path
        blobs = bucket_of(remote.uri).list_blobs(prefix=f"{data}/", **request())
        there = {blob.name.removeprefix(f"{data}/"): (blob.size, blob.crc32c) for blob in blobs}
    packed = remote.packed
    wanted = {e.name: (e.size_bytes, e.crc32c) for e in remote.files if not e.link and e.name not in packed}
    wanted |= {pack.name: (pack.size_bytes, pack.crc32c) for pack in remote.packs}
    return all(there.get(name) == content for name, content in wanted.items())


def upload(directory: Path, manifest: Manifest, before: RemoteManifest, packing: bool = True) -> RemoteManifest:
    """Publishes `directory` at `before.uri` if that is still as it was; returns what stands there now.

    That is this writer's artifact, or another's who was first: compare the entries. packing: whether small files may
    share objects.
    """
    from google.api_core.exceptions import PreconditionFailed

    uri = before.uri
    if before.generation and before.files == manifest.files and bool(before.packs) <= packing and is_whole(before):
        return before  # the very same content
    bucket = bucket_of(uri)
    data = f"data/{manifest_digest(manifest.files)[:12]}-{secrets.token_hex(4)}"
    blob = bucket.blob((uri / MANIFEST).path)
    with _beside(directory) as scratch:
        groups = plan(manifest.files) if packing else []
        packs = [write_pack(directory, group, Path(scratch, f"{i:04}.tar")) for i, group in enumerate(groups)]
        packed = {name for pack in packs for name in pack.offsets}
        alone = [entry for entry in manifest.files if not entry.link and entry.name not in packed]
        pairs = [(str(directory / entry.name), bucket.blob((uri / data / entry.name).path)) for entry in alone]
        pairs += [(str(Path(scratch, Path(p.name).name)), bucket.blob((uri / data / p.name).path)) for p in packs]
        try:
            with explained(uri):
                _transfer(f"uploading to {uri}", pairs, _upload_many)
        except BaseException:
            _remove(bucket, uri / data)
            raise
    document = manifest_document(manifest.files) | {"data": data}
    document |= {"packs": [pack.to_json() for pack in packs]} if packs else {}
    text = json.dumps(document, indent=1)
    # From here on the files may be what a manifest names, whatever becomes of this process: they are not removed on
    # errors, for an answer that is lost does not say that nothing was written.
    after, found = RemoteManifest(uri), before.generation
    while not after.generation:
        try:
            with explained(uri):
                blob.upload_from_string(
                    text, "application/json", if_generation_match=found, checksum="crc32c", **request()
                )
            after = RemoteManifest(uri, blob.generation, data, manifest.files, tuple(packs))
        except PreconditionFailed:
            after = look(uri)  # ours all the same if only the answer to the first attempt was lost
            found = 0  # if what was there was only removed: nobody has published anything else
    outdated = before.data if after.data == data else data
    if outdated:
        _remove(bucket, uri / outdated)
    return after


def download(remote: RemoteManifest, into: Path) -> RemoteManifest:
    """Fills the empty directory `into` with the files of an artifact; returns what it holds then.

    That is `remote`, or what it was replaced by while it was read.

    Raises:
        UserError: files are missing, or are not what the manifest says (names the first); or it was removed meanwhile.
    """
    for _attempt in range(_ATTEMPTS):
        try:
            _download(remote, into)
            return remote
        except _Damaged:
            now = look(remote.uri)
            if now.generation == remote.generation:
                raise
        if not now.generation:
            raise UserError(f"{remote.uri} was removed while it was read", "find out who did, and make it again")
        say(f"{remote.uri} was replaced while it was read; reading what is there now")
        empty(into)
        remote = now
    raise _changes_all_the_time(remote.uri)


def empty(directory: Path) -> None:
    """Removes everything in a directory."""
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _changes_all_the_time(uri: GsUri) -> UserError:
    return UserError(f"{uri} changes all the time", "find out who writes there, and run this again")


def _download(remote: RemoteManifest, into: Path) -> None:
    from google.api_core.exceptions import NotFound

    uri = remote.uri
    bucket = bucket_of(uri)
    packed = remote.packed
    entries = {entry.name: entry for entry in remote.files}
    places = {entry.name: inside(into, entry.name, uri) for entry in remote.files}
    pairs = []
    for entry in remote.files:
        if entry.link:
            os.symlink(entry.link, places[entry.name])
        elif entry.name not in packed:
            pairs.append((bucket.blob((uri / remote.data / entry.name).path), places[entry.name]))
    with _beside(into) as scratch:
        archives = {pack: str(Path(scratch, str(i))) for i, pack in enumerate(pack.name for pack in remote.packs)}
        pairs += [(bucket.blob((uri / remote.data / pack).path), archive) for pack, archive in archives.items()]
        try:
            with explained(uri, missing=False):
                _transfer(f"downloading {uri}", pairs, _download_many)
        except NotFound as error:
            raise _Damaged(f"{uri} is damaged: a file of it is missing: {error.message}", "make it again") from None
        for pack in remote.packs:
            known = ((entries[name], offset, places[name]) for name, offset in pack.offsets.items() if name in entries)
            unpack(Path(archives[pack.name]), known)
    for entry in remote.files:
        if entry.executable:
            (into / entry.name).chmod(0o755)
    wrong = sorted({entry.name for entry in set(describe(into)) ^ set(remote.files)})
    if wrong:
        raise _Damaged(
            f"{uri} is damaged: files whose content is not what its {MANIFEST} says: {', '.join(wrong[:5])}",
            "make it again, at another URI or after deleting this one",
        )


def download_folder(uri: GsUri, into: Path) -> int:
    """Downloads every object below `uri`; returns how many there are. For folders that other tools filled."""
    bucket = bucket_of(uri)
    with explained(uri):
        names = [blob.name for blob in bucket.list_blobs(prefix=f"{uri.path}/", **request())]
        pairs = [(bucket.blob(name), inside(into, name.removeprefix(f"{uri.path}/"), uri)) for name in names]
        _transfer(f"downloading {uri}", [pair for pair in pairs if not pair[0].name.endswith("/")], _download_many)
    return len(pairs)


@contextmanager
def _beside(directory: Path) -> Iterator[str]:
    """A scratch directory where there is room for what `directory` holds; the system's own may be in memory.

    Named and locked as a partial artifact is (components.storage.publish), so that what a kill leaves is removed.
    """
    with tempfile.TemporaryDirectory(prefix=f"{directory.name}-packs-", dir=directory.parent) as scratch:
        lock = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield scratch
        finally:
            os.close(lock)


def inside(into: Path, name: str, uri: GsUri) -> str:
    """Where the file `name` of the artifact `uri` goes; its directory is made. A name that leads out is refused."""
    path = into / name
    if not path.resolve().is_relative_to(into.resolve()):
        raise UserError(f"{uri} is damaged: {name} lies outside of it", "make it again")
    path.parent.mkdir(parents=True, exist_ok=True)
    return str(path)


def remove(uri: GsUri) -> None:
    """Deletes an artifact: its manifest first, so that no reader begins with what is going."""
    bucket = bucket_of(uri)
    _remove(bucket, uri / MANIFEST)
    _remove(bucket, uri / "data")


def _transfer(what: str, pairs: Sequence[Any], move: Callable[[Sequence[Any]], None]) -> None:
    if len(pairs) < _SHOW_FROM:
        move(pairs)
        return
    with Progress(what, total=len(pairs)) as progress:
        for start in range(0, len(pairs), _BATCH):
            batch = pairs[start : start + _BATCH]
            move(batch)
            progress.advance(len(batch))


def _upload_many(pairs: Sequence[Any]) -> None:
    from google.cloud.storage import transfer_manager as tm

    tm.upload_many(
        pairs, worker_type=tm.THREAD, max_workers=WORKERS, raise_exception=True,
        upload_kwargs={"checksum": "crc32c", **request()},
    )  # fmt: skip


def _download_many(pairs: Sequence[Any]) -> None:
    from google.cloud.storage import transfer_manager as tm

    tm.download_many(
        pairs, worker_type=tm.THREAD, max_workers=WORKERS, raise_exception=True,
        download_kwargs={"checksum": "crc32c", **request()},
    )  # fmt: skip


def _remove(bucket: Any, place: GsUri) -> None:
    """Deletes the objects at and below `place`, as well as it goes: what stays is unreferenced."""
    from google.api_core.exceptions import NotFound

    try:
        with explained(place):
            for blob in list(bucket.list_blobs(prefix=place.path, **request())):
                if blob.name == place.path or blob.name.startswith(f"{place.path}/"):
                    with suppress(NotFound):  # by another, or by a first attempt whose answer was lost
                        blob.delete(**request())
    except UserError as error:
        say(f"warning: {place} stays behind: {error.problem}")
