"""Artifacts in object storage: published whole or not at all, checked when they are read.

    gs://BUCKET/PATH/manifest.json        as on a disk, and "data": the folder of its files; written last
    gs://BUCKET/PATH/data/<id>/<name>     the files; <id> is new for each writer
    gs://BUCKET/PATH/data/<id>/@packs/    small files together, where there are many (components.storage.packs)

Objects are whole when they appear, but an artifact is many. So each writer uploads to a folder of its own, and the
manifest, written under a generation precondition (it is still what the writer found when it began), decides: of
writers that race one wins, and no reader ever sees files of two. The folder of a writer that was killed stays behind
until components.storage.sweep removes it: a day after its last object, when no writer may publish it any more.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from components.console import Progress, UserError, say
from components.storage.contained import create_file, create_link
from components.storage.directory import empty
from components.storage.gcs import bucket_of, explained, read_object, request
from components.storage.manifest import (
    MANIFEST,
    VERSION,
    Manifest,
    ManifestEntry,
    NotAManifest,
    check_names,
    describe,
    leaving_link,
    manifest_digest,
    manifest_document,
    parse_manifest,
)
from components.storage.orphans import make_held
from components.storage.packs import Pack, plan, unpack
from components.storage.packs import parse as parse_packs
from components.storage.packs import write as write_pack
from components.storage.uri import GsUri, keeps_changing, name_problem

WORKERS = 8  # what the connection pool of the client holds without warnings, with some to spare
_BATCH = 64  # files between two looks at the progress
_ATTEMPTS = 5  # at what is replaced while it is read
_SHOW_FROM = 100  # files; fewer are moved before a progress line would appear
ABANDONED_AFTER_S = 24 * 3600.0
"""The lifetime of a folder that no manifest names: from then on its writer counts as dead, and may not publish it."""
DATA_ID = r"[0-9a-f]{12}-[0-9a-f]{8}"
"""The name of a writer's folder: of its content, and random."""


@dataclass(frozen=True)
class RemoteManifest:
    """What is at `uri`.

    Attributes:
        generation: of the manifest object, 0 if there is none, and then no files.
        data: the folder of the files, "" also where the manifest is damaged.
        packs: objects of several files, which are no objects of their own.
    """

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
    return _parse(uri, text, generation)


def look_to_replace(uri: GsUri) -> RemoteManifest:
    """As `look`, for a writer: a manifest of ours that is damaged or was cut short counts as one without files.

    Raises:
        UserError: as `look`; another tool's manifest.json, or one of a newer version of this program, is in the way.
    """
    text, generation = read_object(uri / MANIFEST)
    if text is None:
        return RemoteManifest(uri)
    try:
        return _parse(uri, text, generation)
    except NotAManifest as error:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = {"version": VERSION}  # cut short
        if not isinstance(document, dict) or document.get("version") != VERSION:
            raise NotAManifest(
                error.problem, f"another tool made it: delete {uri / MANIFEST}, or choose another --output"
            ) from None
        say(f"warning: {error.problem}: it is replaced")
        return RemoteManifest(uri, generation)


def _parse(uri: GsUri, text: bytes, generation: int) -> RemoteManifest:
    """The manifest at `uri`, of which no entry names anything outside of the artifact. NotAManifest if it is none."""
    place, remedy = str(uri / MANIFEST), f"make the artifact again at {uri}: that replaces it"
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise NotAManifest(f"{place} is not a manifest: it is not JSON, or cut short", remedy) from None
    files = parse_manifest(document, place, remedy)
    if link := leaving_link(files):
        raise NotAManifest(f"{place}: the link {link.name} leads out of the artifact, to {link.link}", remedy)
    packs = parse_packs(document, files, place, remedy)
    data = document.get("data")
    if not isinstance(data, str) or not re.fullmatch(f"data/{DATA_ID}", data):
        raise NotAManifest(f"{place} does not say which folder the files are in: data is {data!r}"[:400], remedy)
    return RemoteManifest(uri, generation, data, files, packs)


class _Damaged(UserError):
    """Objects are not what the manifest says: it is damaged, or was replaced since the manifest was read."""


class Replaced(Exception):
    """The artifact was replaced while it was read. by: what is there now."""

    def __init__(self, by: RemoteManifest) -> None:
        super().__init__(by)
        self.by = by


def look_whole(uri: GsUri) -> RemoteManifest:
    """As `look`, but of generation 0 also where files of the artifact are missing or differ."""
    for _attempt in range(_ATTEMPTS):
        remote = look(uri)
        if not remote.generation or is_whole(remote):
            return remote
        if look(uri).generation == remote.generation:
            return RemoteManifest(uri)
    raise keeps_changing(uri)


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

    Raises:
        UserError: object storage refuses or does not answer; a file's name or a link cannot be published there.
    """
    for _attempt in range(_ATTEMPTS):
        after, in_time = _upload_once(directory, manifest, before, packing)
        if in_time:
            return after
        say(f"{before.uri}: uploading took more than {ABANDONED_AFTER_S / 3600:.0f} h, it is done once more")
        before = RemoteManifest(
            after.uri, after.generation, after.data
        )  # without files: whether they are there is open
    _withdraw(after)
    raise UserError(
        f"{before.uri} cannot be published: uploading takes more than {ABANDONED_AFTER_S / 3600:.0f} h each time",
        "publish from a machine with a faster connection",
    )


def _upload_once(
    directory: Path, manifest: Manifest, before: RemoteManifest, packing: bool
) -> tuple[RemoteManifest, bool]:
    """`upload`, and whether this writer's files cannot have been swept: they are younger than an abandoned folder's."""
    from google.api_core.exceptions import PreconditionFailed

    uri = before.uri
    _require_publishable(uri, manifest.files)
    if before.data and before.files == manifest.files and bool(before.packs) <= packing and is_whole(before):
        return before, True  # the very same content
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
    return after, after.data != data or _published_in_time(uri, [object_ for _path, object_ in pairs], blob)


def _published_in_time(uri: GsUri, objects: Sequence[Any], manifest: Any) -> bool:
    """Whether no sweep can have taken these objects for abandoned before their manifest was there.

    By the server's own times: a process, or a whole machine, that was stopped for a day does not know of it.
    """
    created = [blob.time_created for blob in objects if blob.time_created]
    if not created:
        return True
    published: datetime | None = manifest.updated
    if published is None:  # the answer that had it was lost
        with explained(uri):
            found = bucket_of(uri).get_blob(manifest.name, **request())
        published = found.updated if found else None
    return published is None or (published - min(created)).total_seconds() < ABANDONED_AFTER_S


def _withdraw(artifact: RemoteManifest) -> None:
    """Removes an artifact unless another writer has replaced it."""
    from google.api_core.exceptions import NotFound, PreconditionFailed

    bucket = bucket_of(artifact.uri)
    with explained(artifact.uri, missing=False), suppress(NotFound, PreconditionFailed):
        manifest = bucket.blob((artifact.uri / MANIFEST).path)
        manifest.delete(if_generation_match=artifact.generation, **request())
    _remove(bucket, artifact.uri / artifact.data)


def _require_publishable(uri: GsUri, files: Sequence[ManifestEntry]) -> None:
    """UserError for what no reader would take, or no object can be called, before anything is uploaded."""
    for entry in files:
        if problem := name_problem((uri / f"data/{'0' * 21}" / entry.name).path):
            raise UserError(
                f"the file {entry.name!r} cannot be published at {uri}: {problem}", "rename the file, or leave it out"
            )
    if link := leaving_link(files):
        raise UserError(
            f"the link {link.name} cannot be published at {uri}: it leads out of the artifact, to {link.link}",
            "replace the link by what it leads to, or leave it out",
        )


def download(remote: RemoteManifest, into: Path) -> RemoteManifest:
    """Fills the empty directory `into` with the files of an artifact; returns what it holds then.

    That is `remote`, or what it was replaced by while it was read.

    Raises:
        UserError: files are missing, or are not what the manifest says (names the first); or it was removed meanwhile.
    """
    for _attempt in range(_ATTEMPTS):
        try:
            download_version(remote, into)
            return remote
        except Replaced as replaced:
            say(f"{remote.uri} was replaced while it was read; reading what is there now")
            empty(into)
            remote = replaced.by
    raise keeps_changing(remote.uri)


def download_version(remote: RemoteManifest, into: Path) -> None:
    """Fills the empty directory `into` with the files of this version of an artifact, and of no other.

    Raises:
        Replaced: there is another version by now.
        UserError: as `download`.
    """
    try:
        _download(remote, into)
    except _Damaged:
        now = look(remote.uri)
        if now.generation == remote.generation:
            raise
        if not now.generation:
            raise UserError(
                f"{remote.uri} was removed while it was read", "find out who did, and make it again"
            ) from None
        raise Replaced(now) from None


def _download(remote: RemoteManifest, into: Path) -> None:
    from google.api_core.exceptions import NotFound

    uri = remote.uri
    bucket = bucket_of(uri)
    packed = remote.packed
    entries = {entry.name: entry for entry in remote.files}
    create = {e.name: partial(create_file, into, e.name, e.executable) for e in remote.files if not e.link}
    pairs = [
        (bucket.blob((uri / remote.data / name).path), create[name]) for name in create if name not in packed
    ]  # fmt: skip
    with _beside(into) as scratch:
        archives = {pack: str(Path(scratch, str(i))) for i, pack in enumerate(pack.name for pack in remote.packs)}
        pairs += [
            (bucket.blob((uri / remote.data / pack).path), partial(open, archive, "wb"))
            for pack, archive in archives.items()
        ]
        try:
            with explained(uri, missing=False):
                _transfer(f"downloading {uri}", pairs, _download_many)
        except NotFound as error:
            raise _Damaged(f"{uri} is damaged: {_missing_object(error, uri)} is missing", "make it again") from None
        for pack in remote.packs:
            unpack(
                Path(archives[pack.name]),
                ((entries[name], offset, create[name]) for name, offset in pack.offsets.items()),
            )
    for entry in remote.files:
        if entry.link:  # now that no file is written any more
            create_link(into, entry.name, entry.link)
    wrong = sorted({entry.name for entry in set(describe(into)) ^ set(remote.files)})
    if wrong:
        raise _Damaged(
            f"{uri} is damaged: files whose content is not what its {MANIFEST} says: {', '.join(wrong[:5])}",
            "make it again, at another URI or after deleting this one",
        )


def _missing_object(error: Any, uri: GsUri) -> str:
    """The name of the object that an answer 404 is about, as far as the answer tells."""
    answer = getattr(error, "response", None)
    name = unquote(urlsplit(answer.url).path.rpartition("/o/")[2]) if answer is not None and answer.url else ""
    return f"gs://{uri.bucket}/{name}" if name else "an object of it"


def list_folder(uri: GsUri) -> dict[str, tuple[int, int]]:
    """Name below `uri` -> generation and bytes of each object there, but for those that stand for folders."""
    with explained(uri):
        blobs = [blob for blob in bucket_of(uri).list_blobs(prefix=f"{uri.path}/", **request())]
    found = {blob.name.removeprefix(f"{uri.path}/"): (int(blob.generation), int(blob.size)) for blob in blobs}
    return {name: version for name, version in found.items() if name and not name.endswith("/")}


def download_folder(uri: GsUri, names: Iterable[str], into: Path) -> None:
    """Downloads these objects below `uri`. For what other tools put there.

    Raises:
        UserError: names that cannot be files of one directory; an object is gone.
    """
    names = list(names)
    try:
        check_names(names)
    except ValueError as error:
        raise UserError(
            f"{uri} cannot be a directory on this machine: {error}", "rename or remove the object"
        ) from None
    bucket = bucket_of(uri)
    pairs = [(bucket.blob((uri / name).path), partial(create_file, into, name)) for name in names]
    with explained(uri):
        _transfer(f"downloading {uri}", pairs, _download_many)


@contextmanager
def _beside(directory: Path) -> Iterator[str]:
    """A scratch directory where there is room for what `directory` holds; the system's own may be in memory.

    Named and locked as a partial artifact is (components.storage.publish), so that what a kill leaves is removed.
    """
    scratch, lock = make_held(directory.parent, f"{directory.name}-packs-", directory)
    try:
        yield str(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        os.close(lock)


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


def _download_many(pairs: Sequence[tuple[Any, Callable[[], BinaryIO]]]) -> None:
    """Downloads objects into the files that the second of each pair creates."""
    from google.cloud.storage import transfer_manager as tm

    with ExitStack() as stack:
        files = [(blob, stack.enter_context(create())) for blob, create in pairs]
        tm.download_many(
            files, worker_type=tm.THREAD, max_workers=WORKERS, raise_exception=True,
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
