"""Single files of a directory that is worked in: here, and in object storage if the directory is in a mirror.

Beside the artifacts of a working directory (checkpoints) lie files that grow, such as TensorBoard's events. In object
storage there is no appending: such a file is uploaded whole, as often as it has grown.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from components.storage.directory import make_directory
from components.storage.uri import GsUri, uri_of


def listing(directory: Path) -> dict[str, int]:
    """Name (relative, with "/") -> bytes of each file below `directory`, in object storage if that is a mirror.

    Raises:
        UserError: object storage refuses or does not answer.
    """
    uri = uri_of(directory)
    if uri is None:
        found = {}
        for folder, _folders, files in os.walk(directory):
            for name in files:
                path = Path(folder, name)
                with suppress(FileNotFoundError):  # meanwhile
                    found[path.relative_to(directory).as_posix()] = path.stat().st_size
        return found
    from components.storage.gcs import bucket_of, explained, request

    with explained(uri):
        blobs = list(bucket_of(uri).list_blobs(prefix=f"{uri.path}/", **request()))
    return {blob.name.removeprefix(f"{uri.path}/"): int(blob.size) for blob in blobs}


def push_file(path: Path) -> None:
    """Uploads the file if it is in a mirror. UserError as `listing`."""
    if (uri := uri_of(path)) is None:
        return
    from components.storage.gcs import bucket_of, explained, request

    with explained(uri):
        bucket_of(uri).blob(uri.path).upload_from_filename(str(path), checksum="crc32c", **request())


def pull_file(path: Path) -> None:
    """Downloads the object that `path` is the mirror of; nothing to do elsewhere. UserError as `listing`."""
    if (uri := uri_of(path)) is not None:
        download_file(uri, path)


def drop_file(path: Path) -> None:
    """Removes the file, also from object storage. UserError as `listing`."""
    if (uri := uri_of(path)) is not None:
        from google.api_core.exceptions import NotFound

        from components.storage.gcs import bucket_of, explained, request

        with explained(uri, missing=False), suppress(NotFound):
            bucket_of(uri).blob(uri.path).delete(**request())
    path.unlink(missing_ok=True)


def download_file(uri: GsUri, place: Path, generation: int | None = None) -> None:
    """Brings one object to `place`, whole or not at all.

    Args:
        generation: the one that it must have; NotFound or PreconditionFailed if it has not.

    Raises:
        UserError: as `listing`; there is none, unless a generation was asked for.
    """
    from components.storage.gcs import bucket_of, explained, request

    make_directory(place.parent)
    partial = place.with_name(f".{place.name}.partial-{secrets.token_hex(4)}")
    try:
        with explained(uri, missing=generation is None):
            bucket_of(uri).blob(uri.path).download_to_filename(
                str(partial), checksum="crc32c", if_generation_match=generation, **request()
            )
        os.replace(partial, place)
    finally:
        partial.unlink(missing_ok=True)
