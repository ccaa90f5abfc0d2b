"""manifest.json: the list of an artifact's files. It is written last; a directory without it is not an artifact.

The file is `{"version": 1, "kind": ..., "files": [{"name", "bytes", "crc32c"} ...]}`, sorted by name. Names are
relative, with "/". The kind is one of components.platform.storage.kinds; manifests of earlier versions have none.
`crc32c` is the base64 of the big-endian checksum, as Google Cloud Storage reports it for an object, so that local and
remote files are compared without reading the data again. A symbolic link has "link", its target, instead of bytes and
crc32c. An executable file has "executable": true, because object storage keeps no permissions. The files of a policy
have "sha256", too: who may write to a bucket can make other files of equal size and crc32c, and a deployed policy is
known by the digest of its manifest.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import google_crc32c

from components.platform.errors import UserError
from components.platform.storage.digests import file_digest
from components.platform.storage.input_files import MissingFile, read_json
from components.platform.storage.kinds import KINDS, describe_kind, kind_by_files
from components.platform.storage.put_in_place import restore_replaced
from components.platform.storage.uri import display_path

MANIFEST = "manifest.json"
VERSION = 1
READ_BYTES = 1 << 20

SHA256_KINDS = ("policy",)
"""Kinds of artifacts that are deployed by their digest."""

STEP_OF = {"policy": "ppo"}
"""Step that makes an artifact, for artifacts not named after their step."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, order=True)
class ManifestEntry:
    """One file of an artifact: either a regular file (size_bytes, crc32c) or a symbolic link (link), never both."""

    name: str
    size_bytes: int = 0
    crc32c: str = ""
    link: str = ""
    executable: bool = False
    sha256: str = ""

    def to_json(self) -> dict[str, object]:
        if self.link:
            return {"name": self.name, "link": self.link}
        document: dict[str, object] = {"name": self.name, "bytes": self.size_bytes, "crc32c": self.crc32c}
        document |= {"executable": True} if self.executable else {}
        return document | {"sha256": self.sha256} if self.sha256 else document


@dataclass(frozen=True)
class Manifest:
    """The files of one artifact, sorted by name, without manifest.json itself.

    Attributes:
        kind: one of components.platform.storage.kinds, "" if unknown.
    """

    directory: Path
    files: tuple[ManifestEntry, ...]
    kind: str = ""


def write_manifest(directory: Path, files: tuple[ManifestEntry, ...] | None = None, kind: str = "") -> Manifest:
    """Write the manifest.json of `directory`.

    Args:
        files: the result of `scan_directory`, if already known; `scan_directory` reads every byte.
        kind: what the artifact is; "" leaves it to the names of its files.
    """
    entries = scan_artifact(directory, kind) if files is None else files
    with open(directory / MANIFEST, "w", encoding="utf-8") as stream:
        json.dump(manifest_document(entries, kind), stream, indent=1)
        stream.write("\n")
    return Manifest(directory, entries, kind)


def scan_artifact(directory: Path, kind: str) -> tuple[ManifestEntry, ...]:
    """Return the entries of what becomes an artifact. One that was copied with its manifest keeps its digest."""
    listed = kind in SHA256_KINDS
    if listed and (directory / MANIFEST).is_file():
        listed = any(entry.sha256 for entry in read_manifest(directory).files)
    return scan_directory(directory, sha256=listed)


def scan_directory(
    directory: Path, only: Iterable[Path] | None = None, sha256: bool = False
) -> tuple[ManifestEntry, ...]:
    """Read every file below `directory` except its manifest, or `only` these; return their entries, sorted by name.

    Args:
        sha256: whether the entries have it.
    """
    paths = [path for path in (_walk(directory) if only is None else only) if path != directory / MANIFEST]
    return tuple(sorted(_parallel(lambda path: _entry(directory, path, sha256), paths)))


def manifest_document(entries: Iterable[ManifestEntry], kind: str = "") -> dict[str, object]:
    """Return the JSON document that manifest.json holds."""
    head: dict[str, object] = {"version": VERSION, "kind": kind} if kind else {"version": VERSION}
    return head | {"files": [entry.to_json() for entry in entries]}


def read_manifest(directory: Path) -> Manifest:
    """Read manifest.json. UserError if it is missing or not one of ours."""
    path = directory / MANIFEST
    try:
        document = read_json(path, "delete the directory and make it again")
    except MissingFile:
        raise UserError(
            f"{display_path(directory)} is not a finished artifact: it has no {MANIFEST}",
            "check the path; if the step that makes it was interrupted, run that step again",
        ) from None
    entries = parse_manifest(document, display_path(path), "delete the directory and make it again")
    return Manifest(directory, entries, manifest_kind(document, entries))


def manifest_kind(document: Any, entries: Iterable[ManifestEntry]) -> str:
    """Return the kind of the artifact with this valid manifest, "" if unknown."""
    kind = document.get("kind")
    return kind if kind in KINDS else kind_by_files(entry.name for entry in entries)


class NotAManifest(UserError):
    """The file in the manifest's place is not a valid manifest."""


def parse_manifest(document: Any, source: str, remedy: str) -> tuple[ManifestEntry, ...]:
    """Return the entries of a manifest after checking that none lies outside of the artifact or collides with another.

    Args:
        document: the parsed JSON, of any type.
        source: where it was read, for errors.
        remedy: what to do about an invalid manifest, for errors.

    Raises:
        NotAManifest: it is not one of ours, or its entries contradict each other.
        UserError: it has another version of the format.
    """
    try:
        version = document["version"]
        if type(version) is int and version != VERSION:
            raise UserError(f"{source} has version {version}; this program reads version {VERSION}", "make it again")
        if type(version) is not int:
            raise ValueError(f"version {version!r}")
        entries = tuple(_parse_entry(entry) for entry in document["files"])
        check_names([entry.name for entry in entries])
        return entries
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotAManifest(f"{source} is not a manifest ({error!r})"[:400], remedy) from None


def _parse_entry(entry: Any) -> ManifestEntry:
    name, link = entry["name"], entry.get("link", "")
    check_name(name)
    if "link" in entry:
        if not isinstance(link, str) or not link or "\0" in link:
            raise ValueError(f"the link {name} has the target {link!r}")
        os.fsencode(link)
        return ManifestEntry(name, link=link)
    size_bytes, crc32c = entry["bytes"], entry["crc32c"]
    if type(size_bytes) is not int or not 0 <= size_bytes < 2**63 or not isinstance(crc32c, str):
        raise ValueError(f"{name} has size {size_bytes!r} and checksum {crc32c!r}")
    sha256 = entry.get("sha256", "")
    if not isinstance(sha256, str):
        raise ValueError(f"{name} has the SHA-256 {sha256!r}")
    return ManifestEntry(name, size_bytes, crc32c, executable=entry.get("executable") is True, sha256=sha256)


def check_name(name: Any) -> None:
    """Raise ValueError unless `name` is a relative path inside an artifact, spelled as in manifests."""
    if not isinstance(name, str) or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"{name!r} is not the name of a file inside an artifact")
    if name == MANIFEST:
        raise ValueError(f"{MANIFEST} does not list itself")
    os.fsencode(name)  # UnicodeEncodeError is a ValueError


def check_names(names: list[str]) -> None:
    """Raise ValueError if two entries have one path, or one lies below another that is not a directory."""
    seen = set(names)
    if len(seen) != len(names):
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} is listed twice")
    for name in names:
        parent = posixpath.dirname(name)
        while parent:
            if parent in seen:
                raise ValueError(f"{name} lies below {parent}, which is not a directory")
            parent = posixpath.dirname(parent)


def first_escaping_link(entries: Iterable[ManifestEntry]) -> ManifestEntry | None:
    """Return the first link that is absolute or leads out of the artifact, also by way of another link, or None.

    A link that passes through another link counts as leaving if it goes up ("..") after it: each link is checked as
    spelled, and a ".." after a link could start elsewhere.
    """
    entries = list(entries)
    links = {entry.name for entry in entries if entry.link}
    for entry in entries:
        if entry.link and _leaves(entry, links):
            return entry
    return None


def _leaves(entry: ManifestEntry, links: set[str]) -> bool:
    """Return whether the link's path leaves the artifact at any component, or goes up after another link."""
    if entry.link.startswith("/"):
        return True
    at = entry.name.split("/")[:-1]
    through_link = False
    for part in entry.link.split("/"):
        if part == "..":
            if not at or through_link:
                return True
            at.pop()
        elif part not in ("", "."):
            at.append(part)
            through_link |= "/".join(at) in links
    return False


def verify(directory: Path) -> None:
    """Read every file of the artifact and compare size and crc32c. UserError names the first files that differ."""
    require_whole(read_manifest(directory))


def require_whole(manifest: Manifest) -> None:
    """Read every file of an artifact. UserError names the first files that differ from the manifest."""
    _check_sizes(manifest)
    _refuse(manifest, differing_files(manifest), "whose content differs")


def differing_files(manifest: Manifest) -> list[str]:
    """Read every file of an artifact; return the names of those that are missing or differ from the manifest."""
    whole = _parallel(lambda entry: _is_whole(manifest.directory / entry.name, entry), manifest.files)
    return [entry.name for entry, same in zip(manifest.files, whole, strict=True) if not same]


def _is_whole(path: Path, entry: ManifestEntry) -> bool:
    try:
        if entry.link or not _has_size(path, entry):
            return _has_size(path, entry)
        may_run = not entry.executable or bool(path.stat().st_mode & stat.S_IXUSR)
        same = checksum(path) == (entry.size_bytes, entry.crc32c)
        return may_run and same and (not entry.sha256 or entry.sha256 == file_digest(path))
    except OSError:
        return False


def digest(directory: Path) -> str:
    """Return the content digest of an artifact: sha256 (hex) of its manifest entries; reads no other file."""
    return manifest_digest(read_manifest(directory).files)


def manifest_digest(entries: Iterable[ManifestEntry]) -> str:
    """Return the sha256 (hex) of manifest entries, in their order."""
    lines = [json.dumps(entry.to_json(), sort_keys=True) for entry in entries]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def require_artifact(directory: Path, kind: str, verify_content: bool = False) -> Manifest:
    """Return the manifest of an input artifact; raise a UserError that explains a wrong input.

    Args:
        directory: the path that the user passed.
        kind: the expected artifact, which also names the step that makes it: "corpus", "trace", "vocab", "warmstart",
            ...; one of components.platform.storage.kinds is compared with the manifest's.
        verify_content: also compare checksums, not only existence and sizes.
    """
    step = STEP_OF.get(kind.split()[-1], kind.split()[-1])
    restore_replaced(directory)
    if not directory.is_dir():
        raise UserError(
            f"no {kind} at {display_path(directory)}: no such directory", f"make it, see `mlgo {step} --help`"
        )
    if not (directory / MANIFEST).is_file():
        raise UserError(
            f"{display_path(directory)} is not a finished {kind}: it has no {MANIFEST}",
            f"make it with `mlgo {step}`; if that was interrupted, run it again",
        )
    manifest = read_manifest(directory)
    if kind in KINDS and manifest.kind not in ("", kind):
        raise UserError(
            f"{display_path(directory)} is {describe_kind(manifest.kind)}, not {describe_kind(kind)}",
            f"pass {describe_kind(kind)}, or make one: mlgo {step} --help",
        )
    if verify_content:
        verify(directory)
    else:
        _check_sizes(manifest)
    return manifest


def _check_sizes(manifest: Manifest) -> None:
    wrong = [e.name for e in manifest.files if not _has_size(manifest.directory / e.name, e)]
    _refuse(manifest, wrong, "missing or of the wrong size")


def _has_size(path: Path, entry: ManifestEntry) -> bool:
    try:
        if entry.link:
            return os.readlink(path) == entry.link
        status = path.lstat()
        return stat.S_ISREG(status.st_mode) and status.st_size == entry.size_bytes
    except OSError:
        return False


def _refuse(manifest: Manifest, names: list[str], what: str) -> None:
    if names:
        directory = display_path(manifest.directory)
        remedy = "make it again, or copy it again from where it is whole"
        if manifest.kind == "corpus":
            remedy += f"; if you changed it yourself: mlgo corpus import --input {directory} --output NEW"
        raise UserError(f"{directory} is damaged: files {what}: {list_names(names)}", remedy)


def list_names(names: Sequence[str], limit: int = 5) -> str:
    """Return the first names, for messages."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def unlisted_files(manifest: Manifest) -> list[str]:
    """Return the names of the files below the artifact's directory that its manifest does not list, sorted."""
    listed = {MANIFEST, *(entry.name for entry in manifest.files)}
    present = (path.relative_to(manifest.directory).as_posix() for path in _walk(manifest.directory))
    return sorted(name for name in present if name not in listed)


def _walk(directory: Path) -> Iterable[Path]:
    """Yield every file and symbolic link below `directory`; links to directories are not followed."""
    for folder, folders, files in os.walk(directory):
        yield from (Path(folder, name) for name in files)
        yield from (Path(folder, name) for name in folders if Path(folder, name).is_symlink())


def _entry(directory: Path, path: Path, sha256: bool) -> ManifestEntry:
    name = path.relative_to(directory).as_posix()
    if path.is_symlink():
        return ManifestEntry(name, link=os.readlink(path))
    executable = bool(path.stat().st_mode & stat.S_IXUSR)
    return ManifestEntry(name, *checksum(path), executable=executable, sha256=file_digest(path) if sha256 else "")


def checksum(path: Path) -> tuple[int, str]:
    """Read a file once; return its size in bytes and its crc32c, encoded as in the manifest."""
    crc32c = google_crc32c.Checksum()
    with open(path, "rb") as stream:
        size_bytes = sum(map(len, crc32c.consume(stream, READ_BYTES)))
    return size_bytes, base64.b64encode(crc32c.digest()).decode()


def _parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    # google_crc32c and file reads release the GIL; more than 8 threads gain nothing on a local disk.
    with ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(function, items))
