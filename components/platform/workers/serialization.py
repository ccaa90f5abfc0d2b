"""Pickles functions and items for workers on other machines, with the files that they name.

Paths are not valid on another machine. The pickler replaces

    the mirror of an artifact in object storage  by its URI; the worker fetches the artifact once
    a FileSet of one, as a module of a corpus    by the URI and the names of the files; the worker fetches only these
    a shared directory (WorkerPool.share)        by the digest of its content, which is in Ray's object store

and leaves every other path as it is: it must name the same file on the worker, as on a shared file system.
"""

from __future__ import annotations

import abc
import io
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from components.platform.errors import UserError
from components.platform.storage import digest
from components.platform.storage.manifest import MANIFEST
from components.platform.storage.uri import uri_of


class FileSet(abc.ABC):
    """Base of dataclasses that stand for some files of an artifact: a worker on another machine fetches only these.

    Attributes:
        directory: the artifact.
    """

    directory: Path

    @abc.abstractmethod
    def files(self) -> list[Path]:
        """Return the paths of the files, all below `directory`."""


_RESOLVERS: dict[str, Any] = {}
"""Functions of a worker that find files, see `set_resolvers`."""


def dumps(value: object, shared: Mapping[Path, str], digests: dict[Path, str]) -> bytes:
    """Pickle `value`.

    Args:
        shared: directory -> digest of the content that workers get for it.
        digests: cache of artifacts' digests by directory; reading the manifest of 20,000 modules takes long.
    """
    stream = io.BytesIO()
    _Pickler(stream, shared, digests).dump(value)
    return stream.getvalue()


def set_resolvers(
    shared: Callable[[str], Path],
    artifact: Callable[[str, str], Path],
    files: Callable[[str, str, tuple[str, ...]], Path],
) -> None:
    """Set how this process, a worker, finds the files that `dumps` replaced.

    Args:
        shared: digest of shared content -> its directory here.
        artifact: URI and digest of an artifact -> its directory here.
        files: URI and digest of an artifact, and names of some of its files -> a directory with these.
    """
    _RESOLVERS.update(shared=shared, artifact=artifact, files=files)


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, shared: Mapping[Path, str], digests: dict[Path, str]) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self._shared = shared
        self._digests = digests

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, FileSet):
            return self._file_set(value)
        if isinstance(value, Path):
            return self._path(value)
        return NotImplemented

    def _file_set(self, file_set: FileSet) -> Any:
        root = _artifact_of(file_set.directory)
        if root != file_set.directory:
            return NotImplemented
        names = tuple(path.relative_to(root).as_posix() for path in file_set.files())
        others = {name: value for name, value in vars(file_set).items() if name != "directory"}
        return _resolve_file_set, ((str(uri_of(root)), self._digest(root), names), type(file_set), others)

    def _path(self, path: Path) -> Any:
        if path in self._shared:
            return _resolve_shared, (self._shared[path],)
        root = _artifact_of(path)
        if root is None:
            return NotImplemented
        return _resolve_path, (str(uri_of(root)), self._digest(root), path.relative_to(root).as_posix())

    def _digest(self, root: Path) -> str:
        if root not in self._digests:
            self._digests[root] = digest(root)
        return self._digests[root]


def _artifact_of(path: Path) -> Path | None:
    """Return the artifact that contains `path` if it is the mirror of one in object storage, else None."""
    if uri_of(path) is None:
        return None
    for directory in (path, *path.parents):
        if uri_of(directory) is None:
            break
        if (directory / MANIFEST).is_file():
            return directory
    raise UserError(
        f"{uri_of(path)} is not an artifact, which workers could fetch: it has no {MANIFEST}",
        "import it: mlgo corpus import --input URI --output URI",
    )


def _resolve_shared(content: str) -> Path:
    return Path(_RESOLVERS["shared"](content))


def _resolve_path(uri: str, content: str, relative: str) -> Path:
    return Path(_RESOLVERS["artifact"](uri, content)) / relative


def _resolve_file_set(
    location: tuple[str, str, tuple[str, ...]], kind: Callable[..., FileSet], others: Mapping[str, Any]
) -> FileSet:
    return kind(directory=Path(_RESOLVERS["files"](*location)), **others)
