"""How a function and its items get to a worker on another machine: pickled, and with the files that they name.

Paths are what does not travel. Of those in an object, a pickler of ours turns

    the mirror of an artifact in object storage   into its URI; the worker fetches the artifact, once
    a module of such a corpus                     into its URI and name; the worker reads this module's files only
    a directory that was shared (WorkerPool)      into the digest of its content, which is in Ray's object store

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

_HERE: dict[str, Any] = {}
"""What a worker resolves with; see `arrive`."""


def dumps(thing: object, shared: Mapping[Path, str], digests: dict[Path, str]) -> bytes:
    """Pickles `thing`.

    Args:
        shared: directory -> digest of the content that workers are given for it.
        digests: of artifacts, by directory; filled here, for a manifest of 20,000 modules is not read for each item.
    """
    stream = io.BytesIO()
    _Pickler(stream, shared, digests).dump(thing)
    return stream.getvalue()


def arrive(
    shared: Callable[[str], Path],
    artifact: Callable[[str, str], Path],
    files: Callable[[str, str, tuple[str, ...]], Path],
) -> None:
    """Says how this process, a worker, finds what `dumps` left out.

    Args:
        shared: digest of shared content -> its directory here.
        artifact: URI and digest of an artifact -> its directory here.
        files: URI and digest of an artifact, and names of some of its files -> a directory that has these.
    """
    _HERE.update(shared=shared, artifact=artifact, files=files)


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
        return _module_here, (where, module.name, module.thinlto, module.command_override)

    def _path(self, path: Path) -> Any:
        if path in self._shared:
            return _shared_here, (self._shared[path],)
        root = _artifact_of(path)
        if root is None:
            return NotImplemented
        return _path_here, (str(uri_of(root)), self._digest(root), path.relative_to(root).as_posix())

    def _digest(self, root: Path) -> str:
        if root not in self._digests:
            self._digests[root] = digest(root)
        return self._digests[root]


def _artifact_of(path: Path) -> Path | None:
    """The artifact that `path` is or lies in, if that is the mirror of one in object storage."""
    if uri_of(path) is None:
        return None
    for directory in (path, *path.parents):
        if uri_of(directory) is None:
            break
        if (directory / MANIFEST).is_file():
            return directory
    raise UserError(
        f"{uri_of(path)} is no artifact that a worker elsewhere could fetch: it has no {MANIFEST}",
        "import it: mlgo corpus import --input URI --output URI",
    )


def _shared_here(content: str) -> Path:
    return Path(_HERE["shared"](content))


def _path_here(uri: str, content: str, relative: str) -> Path:
    return Path(_HERE["artifact"](uri, content)) / relative


def _module_here(
    where: tuple[str, str, tuple[str, ...]], name: str, thinlto: bool, override: tuple[str, ...] | None
) -> Module:
    return Module(name, Path(_HERE["files"](*where)), thinlto, override)
