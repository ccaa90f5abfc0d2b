"""Directories that Kubeflow Pipelines copies from and to its object storage, as an ObjectStore.

KFP's launcher downloads the input artifacts of a task to local directories before the container's command starts, and
uploads the output artifacts from there after it has ended (LocalPathForURI in KFP's backend/src/v2/component):

    minio://BUCKET/PATH  <->  /minio/BUCKET/PATH         s3://BUCKET/PATH  <->  /s3/BUCKET/PATH

So steps need no credentials for KFP's object storage. Artifacts have the same layout there as in object storage: KFP
copies file by file, and a corpus is three packs instead of 40,000 files; it cannot copy links, and the manifest has
them. The launcher passes such a directory to a step as kfp-local://minio/BUCKET/PATH (`kfp_local_uri`).

Nothing else reads or writes these directories while a step runs: they belong to its pod. Conditions are checked under a
lock nevertheless, because a step has threads.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, BinaryIO

from components.platform.errors import UserError
from components.platform.storage.object_storage.object_store import (
    NO_VERSION,
    ObjectMissing,
    StoredObject,
    VersionConflict,
)
from components.platform.storage.output_files import replace_file
from components.platform.storage.uri import KFP_LOCAL, ObjectUri

ROOT_VARIABLE = "ARTIFACT_LOCAL_PATH"
"""Environment variable of KFP's launcher with the directory that holds /minio and the others, for debugging."""
_SCHEMES = ("minio", "s3", "oci")
"""KFP's schemes that are read and written by way of local directories. Steps read and write gs:// themselves."""
_READ_BYTES = 1 << 20
_PARTIAL = ".partial-"

_write_lock = threading.Lock()


def kfp_local_uri(uri: str) -> str:
    """Return the kfp-local:// URI of the directory in which KFP's launcher has the artifact at `uri`.

    Returns:
        `uri` itself if it has another scheme than minio://, s3:// and oci://.
    """
    scheme, separator, path = uri.partition("://")
    if not separator or scheme not in _SCHEMES:
        return uri
    if scheme == "oci":  # the files of a model in an image's volume
        path = f"{path.replace('/', '_')}/models"
    return f"{KFP_LOCAL}://{scheme}/{path}"


def local_directory(uri: ObjectUri) -> Path:
    """Return the directory or file that a kfp-local:// URI names."""
    return Path(os.environ.get(ROOT_VARIABLE) or "/", uri.bucket, uri.path)


class KfpLocalStore:
    """Local directories as an ObjectStore. Versions are inode, time and size: files are replaced, not changed."""

    def read(self, uri: ObjectUri) -> tuple[bytes | None, str]:
        with _translate_errors(uri):
            try:
                with _open(uri) as stream:
                    return stream.read(), _version(os.fstat(stream.fileno()))
            except ObjectMissing:
                return None, NO_VERSION

    def read_range(self, uri: ObjectUri, start: int = 0, end: int | None = None) -> bytes:
        with _translate_errors(uri), _open(uri) as stream:
            stream.seek(start)
            return stream.read(-1 if end is None else end - start)

    def head(self, uri: ObjectUri) -> StoredObject | None:
        path = local_directory(uri)
        with _translate_errors(uri):
            return _describe(uri, path) if path.is_file() else None

    def objects(self, folder: ObjectUri) -> list[StoredObject]:
        root = local_directory(folder)
        with _translate_errors(folder):
            entries = ((at, name) for at, _folders, names in os.walk(root) for name in names if _PARTIAL not in name)
            paths = sorted(Path(at, name) for at, name in entries)
            return [_describe(folder / path.relative_to(root).as_posix(), path) for path in paths]

    def write(self, uri: ObjectUri, content: bytes, version: str) -> StoredObject:
        with _write_lock:
            if self.read(uri)[1] != version:
                raise VersionConflict(uri)
            return self._replace(uri, io.BytesIO(content))

    def require_writable(self, uri: ObjectUri) -> None:
        pass  # `write` compares and writes under a lock, and no other process writes there

    def upload(self, files: Sequence[tuple[Path, ObjectUri]]) -> list[datetime]:
        for path, uri in files:
            with open(path, "rb") as source:
                self._replace(uri, source)
        return [datetime.now(UTC)] if files else []

    def download(self, objects: Sequence[tuple[ObjectUri, Callable[[], BinaryIO]]]) -> None:
        for uri, create in objects:
            with _translate_errors(uri), _open(uri) as source, create() as stream:
                _copy(source, stream)

    def download_to(self, uri: ObjectUri, path: Path, version: str = NO_VERSION) -> None:
        with _translate_errors(uri), _open(uri) as source, open(path, "wb") as stream:
            if version not in (NO_VERSION, _version(os.fstat(source.fileno()))):
                raise ObjectMissing(uri, "it was replaced")
            _copy(source, stream)

    def delete(self, uri: ObjectUri, version: str = NO_VERSION) -> None:
        with _write_lock, _translate_errors(uri):
            if version in (NO_VERSION, self.read(uri)[1]):
                local_directory(uri).unlink(missing_ok=True)

    def server_time(self, uri: ObjectUri) -> datetime:
        return datetime.now(UTC)

    def _replace(self, uri: ObjectUri, content: BinaryIO) -> StoredObject:
        path = local_directory(uri)
        with _translate_errors(uri):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as stream:
                _copy(content, stream)
            return _describe(uri, path)


def _describe(uri: ObjectUri, path: Path) -> StoredObject:
    status = path.stat()
    updated = datetime.fromtimestamp(status.st_mtime, UTC)
    return StoredObject(uri.path, status.st_size, _version(status), updated=updated)


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


def _copy(source: BinaryIO, target: IO[bytes]) -> None:
    while block := source.read(_READ_BYTES):
        target.write(block)


def _open(uri: ObjectUri) -> BinaryIO:
    try:
        return open(local_directory(uri), "rb")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise ObjectMissing(uri) from None


@contextmanager
def _translate_errors(uri: ObjectUri) -> Iterator[None]:
    """Turn errors of the file system into a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{local_directory(uri)}, from which Kubeflow Pipelines copies {uri}, cannot be used: {error.strerror}",
            "check the step's user, and the volumes and the disk of its node",
        ) from None
