"""Atomic publication: an artifact appears whole or not at all, even if the step that makes it is interrupted.

This file handles the file system; an artifact published into the mirror of a URI (uri.py) is
uploaded first.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from components.platform.console import say
from components.platform.storage.directory import empty, make_directory, remove_if_unused
from components.platform.storage.inputs import require_unchanged_inputs
from components.platform.storage.kinds import Kind
from components.platform.storage.manifest import Manifest, ManifestEntry, scan_artifact, write_manifest
from components.platform.storage.output_files import name_full_disk
from components.platform.storage.put_in_place import flush, flush_files, put_in_place, restore_replaced
from components.platform.storage.replaceable import require_apart, require_replaceable
from components.platform.storage.shared_state.stale_directories import create_locked, remove_stale
from components.platform.storage.uri import uri_of


@dataclass
class Partial:
    """A directory that becomes an artifact.

    Attributes:
        kind: what it becomes.
        files: its entries, if known without reading every file again.
        has_manifest: whether it gets a manifest; False for folders that other tools filled.
    """

    directory: Path
    kind: str
    files: tuple[ManifestEntry, ...] | None = None
    has_manifest: bool = True


@contextmanager
def publish(output: Path, kind: Kind, packing: bool = True) -> Iterator[Path]:
    """Yield a new directory to fill; when the block ends without an exception it becomes `output`, of this kind.

    The directory is a sibling of `output` (same file system, so that a rename is atomic), named
    `.<name>.partial-<random>`. On success its manifest is written last and it is renamed into place; an older artifact
    is exchanged in one system call and then removed, so that a reader always finds a whole one. On any exception the
    directory is removed. Partial directories that a killed process left for the same output are removed first.

    If `output` is the mirror of a URI, the artifact is uploaded before it appears locally. If another writer has
    published there since the block began, that writer's artifact stays and also becomes `output`. Other content of the
    mirror is removed: a cache never blocks publication.

    Args:
        packing: whether many small files may share objects in storage (object_storage/packs.py); False for
            outputs that other tools read, which need one object per file.

    Raises:
        UserError: something else than an artifact of this kind is at `output`, or `output` overlaps with an input or
            another artifact; or an input was replaced meanwhile; or `output` cannot be created; or object storage
            refuses or does not answer (all but the second checked before the block runs, too).
    """
    output = Path(os.path.abspath(output))
    uri = uri_of(output)
    if uri is None:
        with publish_local(output, kind) as partial:
            yield partial.directory
            require_unchanged_inputs()
        return
    from components.platform.storage.object_storage.remote import download, read_manifest_to_replace, upload

    require_apart(output, "choose another --output")
    before = read_manifest_to_replace(uri, kind)
    with publish_local(output, kind, replace_anything=True) as partial:
        yield partial.directory
        require_unchanged_inputs()
        partial.files = scan_artifact(partial.directory, kind)
        after = upload(partial.directory, Manifest(partial.directory, partial.files, kind), before, packing)
        if after.files != partial.files:
            say(f"{uri}: another writer published first; using its artifact")
            empty(partial.directory)
            partial.files = download(after, partial.directory).files


def require_publishable(output: Path, kind: Kind) -> None:
    """Raise UserError as `publish`, for steps that work for long before they publish."""
    output = Path(os.path.abspath(output))
    uri = uri_of(output)
    if uri is None:
        require_replaceable(output, kind)
        return
    from components.platform.storage.object_storage.remote import read_manifest_to_replace

    require_apart(output, "choose another --output")
    read_manifest_to_replace(uri, kind)


@contextmanager
def publish_local(output: Path, kind: str, replace_anything: bool = False) -> Iterator[Partial]:
    """Publish on this machine only. Args and raises as `publish`, which also checks inputs; `output` is absolute.

    Args:
        kind: may also be unknown, "", for the artifact of an earlier version.
        replace_anything: whether `output` may be replaced whatever it is, as in the cache.
    """
    if not replace_anything:
        require_replaceable(output, kind)
    with remove_if_unused(output.parent):
        make_directory(output.parent, output)
        restore_replaced(output)
        # And the scratch directories next to them.
        ours = re.compile(re.escape(f".{output.name}.partial-") + r"[0-9a-f]{8}(-old|-packs-[0-9a-f]{8})?")
        remove_stale([path for path in output.parent.iterdir() if ours.fullmatch(path.name)])
        # Held until the directory is published or doomed, so that remove_stale leaves it alone.
        partial, lock = create_locked(output.parent, f".{output.name}.partial-", output)
        try:
            filled = Partial(partial, kind)
            with name_full_disk(output):
                yield filled
                if filled.has_manifest:
                    write_manifest(partial, filled.files, filled.kind)
                if not replace_anything:  # a mirror is downloaded again
                    flush_files(partial)
            if not replace_anything:
                require_replaceable(output, kind)
            put_in_place(partial, output)
            flush(output.parent)
        finally:
            # After an exchange `partial` is the old artifact, after a failure the unfinished one, after a rename
            # missing. Its removal may need the descriptor of the lock, where no more files can be opened.
            os.close(lock)
            if partial.is_dir():
                shutil.rmtree(partial, ignore_errors=True)
            else:
                partial.unlink(missing_ok=True)


def discard(directory: Path) -> None:
    """Remove an artifact, also from object storage if `directory` is a mirror."""
    if uri := uri_of(directory):
        from components.platform.storage.object_storage.remote import remove

        remove(uri)
    # A mirror holds only what was fetched here: perhaps one of ten checkpoints in the bucket. Elsewhere a user may have
    # removed the artifact already.
    with suppress(FileNotFoundError):
        shutil.rmtree(directory, ignore_errors=uri is not None)
