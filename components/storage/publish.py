"""Atomic publication: an artifact appears whole or not at all, whatever interrupts the step that makes it.

Here on a file system; what is published into the mirror of a gs:// URI (components.storage.uri) goes there first.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from components.console import UserError, say
from components.storage.directory import empty, make_directory
from components.storage.manifest import MANIFEST, Manifest, ManifestEntry, describe, write_manifest
from components.storage.orphans import make_held, remove_orphans
from components.storage.uri import uri_of

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # linux/fs.h


@dataclass
class Partial:
    """A directory that becomes an artifact.

    Attributes:
        files: what it holds, if that is known without reading it all again.
        vouched: whether it gets a manifest; not what other tools put together.
    """

    directory: Path
    files: tuple[ManifestEntry, ...] | None = None
    vouched: bool = True


@contextmanager
def publish(output: Path, packing: bool = True) -> Iterator[Path]:
    """Yields a fresh directory to fill; when the block ends without an exception it becomes `output`.

    The directory is a sibling of `output` (same file system, so that a rename is atomic), named
    `.<name>.partial-<random>`. On success its manifest is written last and it is renamed into place; an older
    artifact is exchanged in one system call and then removed, so that a reader always finds a whole one. On any
    exception it is removed. Partial directories left by a killed process of the same output are removed first.

    Where `output` is the mirror of a gs:// URI, the artifact is uploaded before it appears here. If another writer has
    published there since this block began, that one's artifact stays, and becomes `output` instead. What else is in the
    mirror is removed: a cache keeps nobody from publishing. `packing`: whether many small files may share objects there
    (components.storage.packs); other tools than ours want each as an object.

    Raises:
        UserError: `output` exists and is not an artifact (a file, or a directory with content but no manifest):
            it is not ours to replace; or it cannot be made there. Object storage refuses or does not answer (told
            before the block runs, too).
    """
    output = Path(os.path.abspath(output))
    uri = uri_of(output)
    if uri is None:
        with put(output) as partial:
            yield partial.directory
        return
    from components.storage.remote import download, look_to_replace, upload

    before = look_to_replace(uri)
    with put(output, replace_anything=True) as partial:
        yield partial.directory
        partial.files = describe(partial.directory)
        after = upload(partial.directory, Manifest(partial.directory, partial.files), before, packing)
        if after.files != partial.files:
            say(f"{uri}: another writer was first; what it published is used")
            empty(partial.directory)
            partial.files = download(after, partial.directory).files


@contextmanager
def put(output: Path, replace_anything: bool = False) -> Iterator[Partial]:
    """`publish` on this machine alone. Args and raises as there; `output` is absolute.

    Args:
        replace_anything: whether `output` is ours whatever is there, as in the cache.
    """
    if not replace_anything:
        _require_replaceable(output)
    make_directory(output.parent, output)
    remove_orphans(output.parent.glob(f".{output.name}.partial-*"))
    # Held while this process lives: see remove_orphans.
    partial, lock = make_held(output.parent, f".{output.name}.partial-", output)
    try:
        filled = Partial(partial)
        yield filled
        if filled.vouched:
            write_manifest(partial, filled.files)
        _flush_directory(partial)
        if not replace_anything:
            _require_replaceable(output)
        _put_in_place(partial, output)
        _flush_directory(output.parent)
    finally:
        # After an exchange this is the old artifact, after a failure the unfinished one, after a plain rename nothing.
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)
        os.close(lock)


def discard(directory: Path) -> None:
    """Removes an artifact, also from object storage if `directory` is a mirror."""
    if uri := uri_of(directory):
        from components.storage.remote import remove

        remove(uri)
    # A mirror holds what was wanted here: of ten checkpoints in the bucket perhaps one. And elsewhere a user may have
    # removed the artifact before.
    with suppress(FileNotFoundError):
        shutil.rmtree(directory, ignore_errors=uri is not None)


def _require_replaceable(output: Path) -> None:
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise UserError(f"{output} exists and is not a directory", "remove it, or choose another --output")
    if output.is_dir() and not (output / MANIFEST).exists() and any(output.iterdir()):
        raise UserError(
            f"{output} is not empty and was not made by this program: it has no {MANIFEST}",
            "choose another --output, or remove the directory if you do not need it",
        )


def _put_in_place(partial: Path, output: Path) -> None:
    try:
        os.rename(partial, output)  # where there is nothing, or an empty directory
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
    try:
        _exchange(partial, output)
    except OSError:
        # No RENAME_EXCHANGE here (some network mounts): a moment without an artifact is the best that can be done.
        aside = partial.with_name(partial.name + "-old")
        os.rename(output, aside)
        os.rename(partial, output)
        shutil.rmtree(aside, ignore_errors=True)


def _exchange(left: Path, right: Path) -> None:
    """Swaps two directory entries in one atomic step (renameat2, Linux 3.15). OSError where it is not supported."""
    libc = ctypes.CDLL(None, use_errno=True)
    rename = getattr(libc, "renameat2", None)
    if rename is None:
        raise OSError("no renameat2 in this C library")
    if rename(_AT_FDCWD, os.fsencode(left), _AT_FDCWD, os.fsencode(right), _RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
