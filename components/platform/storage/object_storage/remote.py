"""Artifacts in object storage: published atomically, verified when read.

    gs://BUCKET/PATH/manifest.json        as on disk, plus "data": the folder that holds the files; written last
    gs://BUCKET/PATH/data/<id>/<name>     the files; each writer uses a new <id>
    gs://BUCKET/PATH/data/<id>/@packs/    small files packed together, if there are many (object_storage/packs.py)

A single object appears atomically, but an artifact consists of many. So each writer uploads to a folder of its own and
then writes the manifest under a precondition: it is still the one that the writer found when it started. If writers
race, exactly one wins, and no reader ever sees a mix of two writers' files. The folder of a killed writer stays until
object_storage/sweep.py removes it, one day after its last object, when no writer may publish it any more.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

from components.platform.console import Progress, say
from components.platform.errors import UserError
from components.platform.storage.directory import empty
from components.platform.storage.kinds import describe_kind
from components.platform.storage.manifest import (
    MANIFEST,
    VERSION,
    Manifest,
    ManifestEntry,
    NotAManifest,
    check_names,
    first_escaping_link,
    manifest_digest,
    manifest_document,
    manifest_kind,
    parse_manifest,
    scan_directory,
)
from components.platform.storage.object_storage.confined_files import create_file_below, create_link
from components.platform.storage.object_storage.object_store import NO_VERSION, ObjectMissing, VersionConflict
from components.platform.storage.object_storage.packs import Pack, group_into_packs, unpack
from components.platform.storage.object_storage.packs import parse as parse_packs
from components.platform.storage.object_storage.packs import write as write_pack
from components.platform.storage.object_storage.shared_write import write_shared
from components.platform.storage.object_storage.stores import server_time, store_of
from components.platform.storage.shared_state.stale_directories import create_locked
from components.platform.storage.uri import ObjectUri, concurrent_modification_error, find_name_problem

T = TypeVar("T")

_BATCH = 64  # files between two updates of the progress line
_ATTEMPTS = 5  # to read or publish an artifact that others keep replacing
_MIN_FILES_FOR_PROGRESS = 100  # fewer are transferred before a progress line would appear
ABANDONED_AFTER_S = 24 * 3600.0
"""Age at which a folder that no manifest names counts as abandoned; its writer may not publish it any more."""
_KEYS = {"version", "kind", "data", "files", "packs"}
DATA_ID = r"[0-9a-f]{12}-[0-9a-f]{8}"
"""Pattern of a writer's folder name: a digest of its content, and random digits."""


@dataclass(frozen=True)
class RemoteManifest:
    """The manifest of the artifact at `uri`.

    Attributes:
        version: version of the manifest object; "" if there is no manifest, and then `files` is empty.
        data: the folder that holds the files; "" if there is no manifest or a damaged one.
        files: all files, packed or not.
        packs: objects that contain several files each; those files have no objects of their own.
        kind: one of components.platform.storage.kinds; "" if unknown.
    """

    uri: ObjectUri
    version: str = NO_VERSION
    data: str = ""
    files: tuple[ManifestEntry, ...] = ()
    packs: tuple[Pack, ...] = ()
    kind: str = ""

    @property
    def packed(self) -> frozenset[str]:
        """Names of the files that are stored in packs."""
        return frozenset(name for pack in self.packs for name in pack.offsets)


def read_remote_manifest(uri: ObjectUri) -> RemoteManifest:
    """Return the manifest at `uri`, with an empty version if there is none.

    Raises:
        UserError: the bucket does not exist, access is denied, the server does not answer, or the manifest is not ours.
    """
    text, version = store_of(uri).read(uri / MANIFEST)
    if text is None:
        return RemoteManifest(uri)
    return _parse(uri, text, version)


def read_manifest_to_replace(uri: ObjectUri, kind: str) -> RemoteManifest:
    """Return the manifest at `uri` for a writer: a damaged or truncated manifest of ours counts as one without files.

    Raises:
        UserError: as `read_remote_manifest`; or the manifest.json belongs to another tool, to a newer version of this
            program, or to an artifact of another kind; or `uri` lies within an artifact.
    """
    store_of(uri).require_writable(uri / MANIFEST)
    text, version = store_of(uri).read(uri / MANIFEST)
    parent = uri
    while "/" in parent.path:
        parent = replace(parent, path=parent.path.rpartition("/")[0])
        if (within := _kind_at(parent)) is not None:
            raise UserError(f"{uri} lies within {describe_kind(within)}, {parent}", "choose another --output")
    if text is None:
        return RemoteManifest(uri)
    try:
        current = _parse(uri, text, version)
        if current.kind != kind:
            raise UserError(
                f"{uri} is {describe_kind(current.kind)}, and would be replaced by {describe_kind(kind)}",
                "choose another --output, or delete what is there if you do not need it",
            )
        return current
    except NotAManifest as error:
        if not _is_damaged(text):
            raise NotAManifest(
                error.problem, f"another tool wrote it: delete {uri / MANIFEST}, or choose another --output"
            ) from None
        say(f"warning: {error.problem}; replacing it")
        return RemoteManifest(uri, version)


def _is_damaged(text: bytes) -> bool:
    """Return whether an invalid manifest is a damaged or truncated one of ours, and not the file of another tool."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        head, start = b'{"version":1,', re.sub(rb"\s", b"", text[:100])
        return head[: len(start)] == start[: len(head)]
    return isinstance(document, dict) and document.get("version") == VERSION and set(document) <= _KEYS


@lru_cache(maxsize=256)
def _kind_at(uri: ObjectUri) -> str | None:
    """Return the kind of the artifact at `uri`; None if there is none, or it cannot be read.

    Asked once: the checkpoints of a training lie below the same places.
    """
    try:
        remote = read_remote_manifest(uri)
    except UserError:
        return None
    return remote.kind if remote.version else None


def _parse(uri: ObjectUri, text: bytes, version: str) -> RemoteManifest:
    """Parse the manifest at `uri`; raise NotAManifest if it is invalid or an entry leads outside of the artifact."""
    source, remedy = str(uri / MANIFEST), f"make the artifact again at {uri}; that replaces it"
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise NotAManifest(f"{source} is not a manifest: it is not JSON, or truncated", remedy) from None
    files = parse_manifest(document, source, remedy)
    if link := first_escaping_link(files):
        raise NotAManifest(f"{source}: the link {link.name} points outside of the artifact, to {link.link}", remedy)
    packs = parse_packs(document, files, source, remedy)
    data = document.get("data")
    if not isinstance(data, str) or not re.fullmatch(f"data/{DATA_ID}", data):
        raise NotAManifest(f"{source} does not name the folder of its files: data is {data!r}"[:400], remedy)
    return RemoteManifest(uri, version, data, files, packs, manifest_kind(document, files))


class _Damaged(UserError):
    """Objects differ from the manifest: the artifact is damaged, or was replaced after the manifest was read."""


class ReplacedDuringDownload(Exception):
    """The artifact was replaced while it was read.

    Attributes:
        by: the manifest that is there now.
    """

    def __init__(self, by: RemoteManifest) -> None:
        super().__init__(by)
        self.by = by


def read_verified_manifest(uri: ObjectUri) -> RemoteManifest:
    """Return the manifest at `uri`, with an empty version also if files of the artifact are missing or differ."""
    for _attempt in range(_ATTEMPTS):
        remote = read_remote_manifest(uri)
        if not remote.version or is_complete(remote):
            return remote
        if read_remote_manifest(uri).version == remote.version:
            return RemoteManifest(uri)
    raise concurrent_modification_error(uri)


def is_complete(remote: RemoteManifest) -> bool:
    """Return whether every file in the manifest exists with its size and checksum, according to a listing.

    Where listings have no checksums, as those of S3, only sizes are compared; readers verify the content.
    """
    data = remote.uri / remote.data
    stored_by_name = {stored.name.removeprefix(f"{data.path}/"): stored for stored in store_of(data).objects(data)}
    packed = remote.packed
    expected = {e.name: (e.size_bytes, e.crc32c) for e in remote.files if not e.link and e.name not in packed}
    expected |= {pack.name: (pack.size_bytes, pack.crc32c) for pack in remote.packs}
    return all(
        (stored := stored_by_name.get(name)) and stored.size_bytes == size_bytes and stored.crc32c in ("", crc32c)
        for name, (size_bytes, crc32c) in expected.items()
    )


def upload(directory: Path, manifest: Manifest, before: RemoteManifest, packing: bool = True) -> RemoteManifest:
    """Publish `directory` at `before.uri` unless that changed since `before` was read; return what is there now.

    The result is this writer's artifact, or that of another writer who was first: compare the entries.

    Args:
        packing: whether small files may share objects.

    Raises:
        UserError: object storage refuses or does not answer; a file name or a link cannot be published there.
    """
    found = before.data
    for _attempt in range(_ATTEMPTS):
        after, in_time = _upload_once(directory, manifest, before, packing)
        if in_time:
            return after
        say(f"{before.uri}: the upload took more than {ABANDONED_AFTER_S / 3600:.0f} h; uploading again")
        before = RemoteManifest(after.uri, after.version, after.data)  # without files: they may have been swept
    if after.data != found:  # unless another writer has replaced it
        store_of(after.uri).delete(after.uri / MANIFEST, after.version)
        _remove(after.uri / after.data)
    raise UserError(
        f"{before.uri} cannot be published: each upload takes more than {ABANDONED_AFTER_S / 3600:.0f} h",
        "publish from a machine with a faster connection",
    )


def _upload_once(
    directory: Path, manifest: Manifest, before: RemoteManifest, packing: bool
) -> tuple[RemoteManifest, bool]:
    """Try `upload` once; also return whether the files are young enough that no sweep can have removed them."""
    uri = before.uri
    _require_publishable(uri, manifest.files)
    if before.data and before.files == manifest.files and bool(before.packs) <= packing and is_complete(before):
        return before, True  # identical content
    store = store_of(uri)
    data = f"data/{manifest_digest(manifest.files)[:12]}-{secrets.token_hex(4)}"
    written: list[datetime] = []
    with _scratch_directory_near(directory) as scratch:
        groups = group_into_packs(manifest.files) if packing else []
        packs = [write_pack(directory, group, Path(scratch, f"{i:04}.tar")) for i, group in enumerate(groups)]
        packed = {name for pack in packs for name in pack.offsets}
        alone = [entry for entry in manifest.files if not entry.link and entry.name not in packed]
        pairs = [(directory / entry.name, uri / data / entry.name) for entry in alone]
        pairs += [(Path(scratch, Path(pack.name).name), uri / data / pack.name) for pack in packs]
        try:
            _transfer(f"uploading to {uri}", pairs, lambda batch: written.extend(store.upload(batch)))
            in_time = not written or _in_time(written, server_time(uri))
        except BaseException:
            _remove(uri / data)
            raise
    if not in_time:
        # No manifest names files that may have been swept: if its answer were lost, it could not be withdrawn.
        _remove(uri / data)
        return before, False
    document = manifest_document(manifest.files, manifest.kind) | {"data": data}
    document |= {"packs": [pack.to_json() for pack in packs]} if packs else {}
    text = json.dumps(document, indent=1)
    # From here on a manifest may name the files even if this process fails. They are not removed on errors: a lost
    # answer does not mean that nothing was written.
    after, version, published = RemoteManifest(uri), before.version, None
    while not after.version:
        try:
            stored = write_shared(uri / MANIFEST, text.encode(), version)
            after = RemoteManifest(uri, stored.version, data, manifest.files, tuple(packs), manifest.kind)
            published = stored.updated
        except VersionConflict:
            after = read_remote_manifest(uri)
            version = NO_VERSION  # if the previous manifest was only removed: nobody else has published
    outdated = before.data if after.data == data else data
    if outdated:
        _remove(uri / outdated)
    return after, after.data != data or _published_in_time(uri, written, published)


def _published_in_time(uri: ObjectUri, written: Sequence[datetime], published: datetime | None) -> bool:
    """Return whether no sweep can have treated these objects as abandoned before their manifest existed.

    Uses the server's timestamps: a process, or a whole machine, that was suspended for a day does not notice it.

    Args:
        written: when the objects were written.
        published: when the manifest was; None if the answer that carried it was lost.
    """
    if not written:
        return True
    if published is None:
        manifest = store_of(uri).head(uri / MANIFEST)
        published = manifest.updated if manifest else None
    return published is None or _in_time(written, published)


def _in_time(written: Sequence[datetime], published: datetime) -> bool:
    return (published - min(written)).total_seconds() < ABANDONED_AFTER_S


def _require_publishable(uri: ObjectUri, files: Sequence[ManifestEntry]) -> None:
    """Raise UserError for links that readers reject and names that objects cannot have, before anything is uploaded."""
    for entry in files:
        if problem := find_name_problem((uri / f"data/{'0' * 21}" / entry.name).path):
            raise UserError(
                f"the file {entry.name!r} cannot be published at {uri}: {problem}", "rename the file, or leave it out"
            )
    if link := first_escaping_link(files):
        raise UserError(
            f"the link {link.name} cannot be published at {uri}: it points outside of the artifact, to {link.link}",
            "replace the link by its target, or leave it out",
        )


def download(remote: RemoteManifest, into: Path) -> RemoteManifest:
    """Download the files of an artifact into the empty directory `into`; return the manifest of what was downloaded.

    That is `remote`, or the version that replaced it during the download.

    Raises:
        UserError: files are missing or differ from the manifest (names the first); or the artifact was removed.
    """
    for _attempt in range(_ATTEMPTS):
        try:
            download_version(remote, into)
            return remote
        except ReplacedDuringDownload as replaced:
            say(f"{remote.uri} was replaced while it was read; reading the new version")
            empty(into)
            remote = replaced.by
    raise concurrent_modification_error(remote.uri)


def download_version(remote: RemoteManifest, into: Path) -> None:
    """Download the files of exactly this version of an artifact into the empty directory `into`.

    Raises:
        ReplacedDuringDownload: another version has replaced it.
        UserError: as `download`.
    """
    try:
        _download(remote, into)
    except _Damaged:
        now = read_remote_manifest(remote.uri)
        if now.version == remote.version:
            raise
        if not now.version:
            raise UserError(
                f"{remote.uri} was removed while it was read", "find out what removed it, and make it again"
            ) from None
        raise ReplacedDuringDownload(now) from None


def _download(remote: RemoteManifest, into: Path) -> None:
    uri = remote.uri
    packed = remote.packed
    entries = {entry.name: entry for entry in remote.files}
    create = {e.name: partial(create_file_below, into, e.name, e.executable) for e in remote.files if not e.link}
    pairs = [(uri / remote.data / name, create[name]) for name in create if name not in packed]
    with _scratch_directory_near(into) as scratch:
        archives = {pack: str(Path(scratch, str(i))) for i, pack in enumerate(pack.name for pack in remote.packs)}
        pairs += [(uri / remote.data / pack, partial(open, archive, "wb")) for pack, archive in archives.items()]
        try:
            _transfer(f"downloading {uri}", pairs, store_of(uri).download)
        except ObjectMissing as error:
            raise _Damaged(f"{uri} is damaged: {error.uri} is missing", "make it again") from None
        for pack in remote.packs:
            unpack(
                Path(archives[pack.name]),
                ((entries[name], offset, create[name]) for name, offset in pack.offsets.items()),
            )
    for entry in remote.files:
        if entry.link:  # only after all files are written
            create_link(into, entry.name, entry.link)
    found = scan_directory(into, sha256=any(entry.sha256 for entry in remote.files))
    wrong = sorted({entry.name for entry in set(found) ^ set(remote.files)})
    if wrong:
        raise _Damaged(
            f"{uri} is damaged: the content of these files differs from its {MANIFEST}: {', '.join(wrong[:5])}",
            "make it again, at another URI or after deleting this one",
        )


def list_folder(uri: ObjectUri) -> dict[str, tuple[str, int]]:
    """Return name below `uri` -> (version, bytes) of each object there, without folder placeholders."""
    objects = store_of(uri).objects(uri)
    versions = {one.name.removeprefix(f"{uri.path}/"): (one.version, one.size_bytes) for one in objects}
    return {name: version for name, version in versions.items() if name and not name.endswith("/")}


def download_folder(uri: ObjectUri, names: Iterable[str], into: Path) -> None:
    """Download the named objects below `uri`, for content that other tools put there.

    Raises:
        UserError: the names cannot be files of one directory; an object is gone.
    """
    names = list(names)
    try:
        check_names(names)
    except ValueError as error:
        raise UserError(
            f"{uri} cannot be a directory on this machine: {error}", "rename or remove the object"
        ) from None
    pairs = [(uri / name, partial(create_file_below, into, name)) for name in names]
    _transfer(f"downloading {uri}", pairs, store_of(uri).download)


@contextmanager
def _scratch_directory_near(directory: Path) -> Iterator[str]:
    """Yield a scratch directory on the file system of `directory`; the system's temporary one may be in memory.

    It is named and locked like a partial artifact (publish.py), so that a later run removes it
    after a kill.
    """
    scratch, lock = create_locked(directory.parent, f"{directory.name}-packs-", directory)
    try:
        yield str(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        os.close(lock)


def remove(uri: ObjectUri) -> None:
    """Delete an artifact, its manifest first so that no reader starts to read files that are being deleted."""
    try:
        store_of(uri).delete(uri / MANIFEST)
    except UserError as error:
        say(f"warning: {uri / MANIFEST} was not removed: {error.problem}")
    _remove(uri / "data")


def _transfer(what: str, pairs: Sequence[T], move: Callable[[Sequence[T]], object]) -> None:
    if len(pairs) < _MIN_FILES_FOR_PROGRESS:
        move(pairs)
        return
    with Progress(what, total=len(pairs)) as progress:
        for start in range(0, len(pairs), _BATCH):
            batch = pairs[start : start + _BATCH]
            move(batch)
            progress.advance(len(batch))


def _remove(folder: ObjectUri) -> None:
    """Delete the objects below `folder`, best effort: what is left is unreferenced."""
    store = store_of(folder)
    try:
        for stored in store.objects(folder):
            store.delete(replace(folder, path=stored.name))
    except UserError as error:
        say(f"warning: {folder} was not removed: {error.problem}")
