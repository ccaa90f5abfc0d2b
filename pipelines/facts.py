"""What a step's result depends on that its command line does not show: the content behind the paths it names."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from components.console import UserError
from components.projects.compile_commands import objects_in
from components.projects.recipe import load_recipes
from components.storage.input_files import read_bytes
from components.storage.manifest import manifest_digest
from components.storage.uri import GsUri


def toolchain_facts(llvm_major: int) -> tuple[str, ...]:
    """The installed clang as it names itself, packaging revision included; empty if there is none (the step tells)."""
    clang = shutil.which(f"clang-{llvm_major}")
    if clang is None:
        return ()
    version = subprocess.run([clang, "--version"], capture_output=True, text=True, check=False, timeout=60)
    return (version.stdout.partition("\n")[0],)


def recipe_facts(recipe: Path) -> tuple[str, ...]:
    """The identity of a recipe: what it says, with the recipes that it names, and the local trees that they build."""
    projects = load_recipes(recipe)
    sources = [source for p in projects.projects for source in (p.source, *(other for _name, other in p.requires))]
    trees = [fact for source in sources if source.kind == "path" for fact in content_facts(Path(source.location))]
    return (_sha256(repr(projects)), *trees)


def build_facts(compile_commands: Path) -> tuple[str, ...]:
    """The identity of a finished build: its compile_commands.json and, of each object named there, size and time.

    What is not a compilation database is identified by its content alone: the step says what is wrong with it.
    """
    content = read_bytes(compile_commands).decode("utf-8", "replace")
    return (_sha256("\n".join([content, *(_stamp(path) for _directory, path in objects_in(content))])),)


def content_facts(path: Path) -> tuple[str, ...]:
    """The identity of what stands at `path`: a file by its content, a directory by its files' names, sizes and times.

    Times rather than content for directories: a user's tree may hold gigabytes, and this runs at each start.
    """
    if path.is_file():
        return (hashlib.sha256(path.read_bytes()).hexdigest(),)
    facts = []
    for folder, folders, files in os.walk(path):
        folders.sort()
        for file in sorted(files):
            place = os.path.join(folder, file)
            facts.append(f"{os.path.relpath(place, path)} {_stamp(place)}")
    return (_sha256("\n".join(facts)),)


def remote_facts(uri: GsUri) -> tuple[str, ...]:
    """The identity of what stands in object storage: an artifact by its manifest, a file or a folder that another tool
    filled by the checksums that the service keeps; nothing but a manifest is read.

    Raises:
        UserError: there is nothing, or no access or answer.
    """
    from components.storage.gcs import bucket_of, explained, request
    from components.storage.remote import look

    artifact = look(uri)
    if artifact.generation:
        return (manifest_digest(artifact.files),)
    with explained(uri):
        blobs = bucket_of(uri).list_blobs(prefix=uri.path, **request())
        found = [
            f"{blob.name} {blob.size} {blob.crc32c}"
            for blob in blobs
            if f"{blob.name}/".startswith(f"{uri.path}/")  # for gs://b/a the service lists gs://b/ab, too
        ]
    if not found:
        raise UserError(f"there is nothing at {uri}", "check the URI")
    return (_sha256("\n".join(sorted(found))),)


def _stamp(path: str) -> str:
    try:
        status = os.lstat(path)
    except (OSError, ValueError):  # the latter of what is no path
        return "missing"
    return f"{status.st_size} {status.st_mtime_ns}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
