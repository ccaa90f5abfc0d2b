"""Single files of a working directory: local, and in object storage if the directory is in a mirror.

Next to its artifacts (checkpoints) a working directory has files that grow, such as TensorBoard's events. Objects
cannot be appended to: such a file is uploaded whole each time.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from components.platform.storage.directory import make_directory
from components.platform.storage.object_storage.object_store import NO_VERSION
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import ObjectUri, uri_of


def list_files(directory: Path) -> dict[str, int]:
    """Return name (relative, with "/") -> bytes of each file below `directory`, or in object storage for a mirror.

    Raises:
        UserError: object storage refuses or does not answer.
    """
    uri = uri_of(directory)
    if uri is None:
        sizes = {}
        for folder, _folders, files in os.walk(directory):
            for name in files:
                path = Path(folder, name)
                with suppress(FileNotFoundError):  # removed meanwhile
                    sizes[path.relative_to(directory).as_posix()] = path.stat().st_size
        return sizes
    return {stored.name.removeprefix(f"{uri.path}/"): stored.size_bytes for stored in store_of(uri).objects(uri)}


def push_file(path: Path) -> None:
    """Upload the file if it is in a mirror. UserError as `list_files`."""
    if (uri := uri_of(path)) is not None:
        store_of(uri).upload([(path, uri)])


def pull_file(path: Path) -> None:
    """Download the object that `path` is the mirror of; no-op for other paths. UserError as `list_files`."""
    if (uri := uri_of(path)) is not None:
        download_file(uri, path)


def remove_file(path: Path) -> None:
    """Remove the file, also from object storage. UserError as `list_files`."""
    if (uri := uri_of(path)) is not None:
        store_of(uri).delete(uri)
    path.unlink(missing_ok=True)


def download_file(uri: ObjectUri, path: Path, version: str = NO_VERSION) -> None:
    """Download one object to `path` atomically.

    Raises:
        ObjectMissing: the object does not exist, or has another version.
        UserError: as `list_files`.
    """
    make_directory(path.parent)
    partial = path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
    try:
        store_of(uri).download_to(uri, partial, version)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
