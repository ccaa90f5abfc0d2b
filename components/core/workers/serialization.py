"""Pickles functions and items for workers on other machines, with the files that they name.

Paths are not valid on another machine. The pickler replaces

    the mirror of an artifact in object storage   by its URI; the worker fetches the artifact once
    a module of such a corpus                     by the URI and its name; the worker fetches only its files
    a shared directory (WorkerPool.share)         by the digest of its content, which is in Ray's object store

and leaves every other path as it is: it must name the same file on the worker, as on a shared file system.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from components.core.compiler.profiles import module_profiles
from components.core.console import UserError
from components.core.formats.corpus import Module
from components.core.storage import digest
from components.core.storage.manifest import MANIFEST
from components.core.storage.uri import uri_of

_RESOLVERS: dict[str, Any] = {}
"""Functions of a worker that find files, see `set_resolvers`."""


def dumps(thing: object, shared: Mapping[Path, str], digests: dict[Path, str]) -> bytes:
    """Pickle `thing`.

    Args:
        shared: directory -> digest of the content that workers get for it.
        digests: cache of artifacts' digests by directory; reading the manifest of 20,000 modules takes long.
    """
    stream = io.BytesIO()
    _Pickler(stream, shared, digests).dump(thing)
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

    def reducer_override(self, thing: object) -> Any:
        if isinstance(thing, Module):
            return self._module(thing)
        if isinstance(thing, Path):
            return self._path(thing)
        return NotImplemented

    def _module(self, module: Module) -> Any:
        root = _artifact_of(module.directory)
        if root != module.directory:
            return NotImplemented
        files = [module.bitcode] if module.command_override is not None else [module.bitcode, module.cmd]
        files += [module.thinlto_index] if module.thinlto_index else []
        files += module_profiles(module)
        names = tuple(path.relative_to(module.directory).as_posix() for path in files)
        where = (str(uri_of(root)), self._digest(root), names)
        return _resolve_module, (where, module.name, module.thinlto, module.command_override)

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


def _resolve_module(
    where: tuple[str, str, tuple[str, ...]], name: str, thinlto: bool, override: tuple[str, ...] | None
) -> Module:
    return Module(name, Path(_RESOLVERS["files"](*where)), thinlto, override)
