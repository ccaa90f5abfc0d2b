"""Single files of a working directory: local, and in object storage if the directory is in a mirror.

Next to its artifacts (checkpoints) a working directory has files that grow, such as TensorBoard's events. Objects
cannot be appended to: such a file is uploaded whole each time.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from components.core.storage.directory import make_directory
from components.core.storage.uri import GsUri, uri_of


def listing(directory: Path) -> dict[str, int]:
    """Return name (relative, with "/") -> bytes of each file below `directory`, or in object storage for a mirror.

    Raises:
        UserError: object storage refuses or does not answer.
    """
    uri = uri_of(directory)
    if uri is None:
        found = {}
        for folder, _folders, files in os.walk(directory):
            for name in files:
                path = Path(folder, name)
                with suppress(FileNotFoundError):  # removed meanwhile
                    found[path.relative_to(directory).as_posix()] = path.stat().st_size
        return found
    from components.core.storage.gcs import bucket_of, request_options, translate_gcs_errors

    with translate_gcs_errors(uri):
        blobs = list(bucket_of(uri).list_blobs(prefix=f"{uri.path}/", **request_options()))
    return {blob.name.removeprefix(f"{uri.path}/"): int(blob.size) for blob in blobs}


def push_file(path: Path) -> None:
    """Upload the file if it is in a mirror. UserError as `listing`."""
    if (uri := uri_of(path)) is None:
        return
    from components.core.storage.gcs import bucket_of, request_options, translate_gcs_errors

    with translate_gcs_errors(uri):
        bucket_of(uri).blob(uri.path).upload_from_filename(str(path), checksum="crc32c", **request_options())


def pull_file(path: Path) -> None:
    """Download the object that `path` is the mirror of; no-op for other paths. UserError as `listing`."""
    if (uri := uri_of(path)) is not None:
        download_file(uri, path)


def remove_file(path: Path) -> None:
    """Remove the file, also from object storage. UserError as `listing`."""
    if (uri := uri_of(path)) is not None:
        from google.api_core.exceptions import NotFound

        from components.core.storage.gcs import bucket_of, request_options, translate_gcs_errors

        with translate_gcs_errors(uri, missing=False), suppress(NotFound):
            bucket_of(uri).blob(uri.path).delete(**request_options())
    path.unlink(missing_ok=True)


def download_file(uri: GsUri, place: Path, generation: int | None = None) -> None:
    """Download one object to `place` atomically.

    Args:
        generation: the required generation; raises NotFound or PreconditionFailed if the object has another.

    Raises:
        UserError: as `listing`; or the object does not exist and no generation was required.
    """
    from components.core.storage.gcs import bucket_of, request_options, translate_gcs_errors

    make_directory(place.parent)
    partial = place.with_name(f".{place.name}.partial-{secrets.token_hex(4)}")
    try:
        with translate_gcs_errors(uri, missing=generation is None):
            bucket_of(uri).blob(uri.path).download_to_filename(
                str(partial), checksum="crc32c", if_generation_match=generation, **request_options()
            )
        os.replace(partial, place)
    finally:
        partial.unlink(missing_ok=True)
