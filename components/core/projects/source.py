"""Fetches the sources of recipes: Debian source packages, git tags, archives, local directories."""

from __future__ import annotations

import lzma
import re
import shutil
import struct
import subprocess
import zipfile
import zlib
from pathlib import Path

from components.core.projects.recipe import Recipe, Source
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.digests import file_digest
from components.platform.storage.downloads.debsource import fetch_deb_source
from components.platform.storage.downloads.git import require_git, run_git
from components.platform.storage.downloads.http_download import download
from components.platform.storage.downloads.retry import Say
from components.platform.storage.shared_state.file_lock import exclusive_lock


def fetch_recipe(recipe: Recipe, into: Path, cache: Path, progress: Say = say) -> Path:
    """Put the recipe's source at `into`/source and its requirements at `into`/<name>; return `into`/source.

    A local path is linked, unless the recipe's own commands run in it: then it is copied, because a user's tree is
    never modified. Downloads are kept below `cache` and reused.
    """
    for name, source in recipe.requires:
        _fetch(source, into / name, cache, progress, in_place=True)
    in_place = recipe.commands is None and not recipe.prepare
    return _fetch(recipe.source, into / "source", cache, progress, in_place=in_place)


def _fetch(source: Source, into: Path, cache: Path, progress: Say, in_place: bool) -> Path:
    into.parent.mkdir(parents=True, exist_ok=True)
    match source.kind:
        case "deb":
            return fetch_deb_source(source.location, cache, into, progress)
        case "git":
            return _clone(source, into, progress)
        case "url":
            return _unpack(_download(source, cache, progress), into)
        case "path":
            return _local(Path(source.location), into, in_place)


def _local(path: Path, into: Path, in_place: bool) -> Path:
    if not path.is_dir():
        raise UserError(f"the source directory {path} does not exist", "correct source: path in the recipe")
    if in_place:
        into.symlink_to(path, target_is_directory=True)
    else:
        shutil.copytree(path, into, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    return into


def _clone(source: Source, into: Path, progress: Say) -> Path:
    require_git(f"it fetches {source.location}")
    progress(f"cloning {source.location} at {source.pin}")
    options = ["--quiet", "--depth=1", "--recurse-submodules", "--shallow-submodules", f"--branch={source.pin}"]
    command = ["-c", "advice.detachedHead=false", "clone", *options, "--", source.location, str(into)]
    task = f"clone {source.location} at {source.pin}"
    run_git(command, task, "check the URL, the tag and the network", progress, into)
    return into


def _download(source: Source, cache: Path, progress: Say) -> Path:
    folder = cache / "archives"
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9._+-]", "_", source.location.rsplit("/", 1)[-1])[-100:]
    archive = folder / f"{source.pin[:16]}-{name or 'archive'}"
    if archive.is_file() and file_digest(archive) == source.pin:
        return archive
    # One build at a time: the next one finds the archive, and overwrites what a killed build left.
    locks = cache / "locks"
    locks.mkdir(exist_ok=True)
    waiting = f"waiting for another build that downloads {source.location}"
    with exclusive_lock(locks / archive.name, waiting, progress):
        if not (archive.is_file() and file_digest(archive) == source.pin):
            _download_archive(source, archive, progress)
    return archive


def _download_archive(source: Source, archive: Path, progress: Say) -> None:
    progress(f"downloading {source.location}")
    partial = archive.with_name(archive.name + ".partial")
    try:
        download(source.location, partial)
        actual = file_digest(partial)
        if actual != source.pin:
            raise UserError(
                f"{source.location} has the SHA-256 {actual}, the recipe says {source.pin}",
                "do not use the archive unless you know why it changed; then correct sha256 in the recipe",
            )
        partial.rename(archive)
    finally:
        partial.unlink(missing_ok=True)


def _unpack(archive: Path, into: Path) -> Path:
    """Unpack to `into`; a single top-level folder, as in most releases, becomes `into`."""
    scratch = into.with_name(into.name + ".unpacking")
    scratch.mkdir(parents=True)
    try:
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, scratch)
        else:
            # GNU tar knows every compression and refuses absolute names and "..".
            command = ["tar", "--extract", "--no-same-owner", "--file", str(archive), "--directory", str(scratch)]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
            if done.returncode != 0:
                raise UserError(f"cannot unpack {archive}: {done.stderr.strip()[-200:]}", "use a tar or zip archive")
        entries = list(scratch.iterdir())
        top = entries[0] if len(entries) == 1 and entries[0].is_dir() else scratch
        top.rename(into)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return into


def _unpack_zip(archive: Path, into: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as file:
            file.extractall(into)
    # Damaged archives raise many exceptions: RuntimeError for encryption, NotImplementedError for a compression.
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError, struct.error, lzma.LZMAError) as error:
        raise UserError(f"cannot unpack {archive}: {error}", "use a tar or zip archive that unzip -t accepts") from None
    except OSError as error:
        if error.errno is None:  # bz2's of a damaged stream
            problem = f"cannot unpack {archive}: {error}"
            raise UserError(problem, "use a tar or zip archive that unzip -t accepts") from None
        if not isinstance(error, FileExistsError | IsADirectoryError | NotADirectoryError):
            raise
        problem = f"cannot unpack {archive}: it has a file and a directory of one name, {error.filename}"
        raise UserError(problem, "use a tar or zip archive that unzip -t accepts") from None
