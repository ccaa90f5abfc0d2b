"""Inputs of a step's result that its command line does not show: the content behind the paths that it names."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from components.core.formats.toolchain import digest_of_clang, read_clang_version
from components.core.projects.compile_commands import objects_in
from components.core.projects.recipe import load_recipes, locate_recipe
from components.core.projects.source import git_commit
from components.platform.errors import UserError
from components.platform.storage.cache import default_cache_dir
from components.platform.storage.digests import file_digest
from components.platform.storage.input_files import read_bytes
from components.platform.storage.manifest import manifest_digest
from components.platform.storage.object_storage.fetch import fetch_file
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import ObjectUri


def identify_toolchain(llvm_major: int) -> tuple[str, ...]:
    """Return the version line of the installed clang, with its packaging revision.

    Empty if clang is not installed; the step reports that itself.
    """
    clang = shutil.which(f"clang-{llvm_major}")
    if clang is None:
        return ()
    return (read_clang_version(clang),)


def identify_recipe(recipe: Path) -> tuple[str, ...]:
    """Identify a recipe by its content, the recipes that it names, and the local trees and commits that they build.

    Raises:
        UserError: the recipe is not valid, or a git source cannot be read.
    """
    projects = load_recipes(recipe)
    sources = [source for p in projects.projects for source in (p.source, *(other for _name, other in p.requires))]
    trees = [fact for source in sources if source.kind == "path" for fact in identify_path(Path(source.location))]
    commits = [git_commit(source, default_cache_dir()) for source in dict.fromkeys(sources) if source.kind == "git"]
    return (_sha256(repr(projects)), *trees, *commits)


def fetch_recipe(recipe: str) -> Path:
    """Return the file of a recipe: that of a built-in one, a path, or the download of a URI."""
    location = locate_recipe(recipe)
    return fetch_file(location) if isinstance(location, ObjectUri) else location


def identify_build(compile_commands: Path) -> tuple[str, ...]:
    """Identify a finished build by its compile_commands.json and the size and time of each object named there.

    A file that is not a compilation database is identified by its content alone; the step reports what is wrong.
    """
    content = read_bytes(compile_commands).decode("utf-8", "replace")
    stamps = [_stamp(path) for _directory, path in objects_in(content, compile_commands)]
    return (_sha256("\n".join([content, *stamps])),)


def identify_input(path: Path) -> tuple[str, ...]:
    """Identify an input of an extraction: a directory as `identify_path` does, a file as `identify_build` does.

    Objects that a linker's arguments name are below another directory, which is identified itself.
    """
    return identify_path(path) if path.is_dir() else identify_build(path)


def identify_path(path: Path) -> tuple[str, ...]:
    """Identify a file by its content, a directory by the names, sizes and times of its files.

    Directories are not identified by content: a user's tree may hold gigabytes, and this runs at each start.
    """
    if path.is_file():
        return (file_digest(path),)
    listed = []
    for folder, folders, files in os.walk(path):
        folders.sort()
        for file in sorted(files):
            file_path = os.path.join(folder, file)
            listed.append(f"{os.path.relpath(file_path, path)} {_stamp(file_path)}")
    return (_sha256("\n".join(listed)),)


def identify_clang(path: Path) -> tuple[str, ...]:
    """Identify a clang by its content and that of LLVM's libraries that it loads."""
    return (digest_of_clang(path),) if path.is_file() else ()


def identify_remote(uri: ObjectUri) -> tuple[str, ...]:
    """Identify what is at a URI in object storage; only a manifest is downloaded.

    An artifact is identified by its manifest, a file or folder written by another tool by the service's checksums, or
    by versions where listings have no checksums.

    Raises:
        UserError: nothing is at the URI, access is denied, or the service does not answer.
    """
    from components.platform.storage.object_storage.remote import read_remote_manifest

    artifact = read_remote_manifest(uri)
    if artifact.version:
        return (manifest_digest(artifact.files),)
    store = store_of(uri)
    itself = store.head(uri)
    objects = [
        f"{one.name} {one.size_bytes} {one.crc32c or one.version}"
        for one in (*([itself] if itself else []), *store.objects(uri))
    ]
    if not objects:
        raise UserError(f"{uri} does not exist", "check the URI")
    return (_sha256("\n".join(sorted(objects))),)


def _stamp(path: str) -> str:
    try:
        status = os.lstat(path)
    except (OSError, ValueError):  # ValueError: not a valid path
        return "missing"
    return f"{status.st_size} {status.st_mtime_ns}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
