"""gs:// URIs and their mirrors, the local directories that stand for them.

Steps work on files. So each artifact in object storage has a mirror below the cache directory: inputs are downloaded
into it, and outputs published into it are uploaded first (publish.py). The mirror of a URI is computed, never stored,
so that every part of a step can derive one from the other:

    gs://bucket/runs/7/vocab  <->  $MLGO_CACHE_DIR/gs/bucket/runs/7/vocab/@/vocab            for writing
                              <->  $MLGO_CACHE_DIR/gs/bucket/runs/7/vocab/@<version>/vocab   one version, for reading

The directory "@" separates the mirror of gs://bucket/a from that of gs://bucket/a/b; an "@" in a name is written %40.
Inputs have one mirror per version (components.core.storage.versions), so that no input changes while it is read.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from components.core.console import UserError
from components.core.storage.cache import default_cache_dir

SCHEME = "gs://"
_MIRROR_MARK = "@"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_VERSION = re.compile(r"@[0-9a-f]*")
_MAX_NAME_BYTES = 1024
"""Limit of Cloud Storage for an object's name, in UTF-8."""
_MAX_PART_BYTES = 220
"""Limit for a component of a mirror's path: file systems allow 255, and a partial directory's name is longer."""


@dataclass(frozen=True)
class GsUri:
    """A place in object storage. `path` has no slash at either end; it may be empty and then names the whole bucket."""

    bucket: str
    path: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.path}"

    def __truediv__(self, name: str) -> GsUri:
        return GsUri(self.bucket, f"{self.path}/{name}" if self.path else name)


def parse_place(text: str) -> GsUri | Path:
    """Parse a path option: gs://BUCKET/PATH, file:///PATH or a path.

    Raises:
        UserError: another scheme; a URI without a bucket or a path, or with a name that no object can have; a file://
            URI of another host.
    """
    if text.startswith(SCHEME):
        bucket, _slash, path = text.removeprefix(SCHEME).partition("/")
        path = path.strip("/")
        if not bucket:
            raise UserError(f"{text} has no bucket", "write it as gs://BUCKET/PATH")
        if not _BUCKET.fullmatch(bucket):
            raise UserError(
                f"{text}: {bucket!r} is not a valid bucket name",
                "bucket names have 3 to 63 characters: a-z, 0-9, - _ and ., a letter or digit first and last",
            )
        if not path or any(part in ("", ".", "..") for part in path.split("/")):
            raise UserError(f"{text} has no path in the bucket {bucket}", "write it as gs://BUCKET/PATH")
        if problem := name_problem(path):
            raise UserError(f"{text!r} is not a valid place in object storage: {problem}", "choose another name")
        return GsUri(bucket, path)
    if text.startswith("file://"):
        host, slash, path = text.removeprefix("file://").partition("/")
        path = unquote(slash + path)
        if host not in ("", "localhost") or not path or "\0" in path:
            raise UserError(f"{text} is not a file on this machine", "write it as file:///PATH, with three slashes")
        return Path(path)
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", text):
        raise UserError(f"{text} has an unsupported scheme", "use gs://BUCKET/PATH, file:///PATH or a path")
    return Path(text)


def name_problem(name: str) -> str:
    """Return why an object cannot have this name (it could not be read or listed again), or "" if it can."""
    control = next((char for char in name if unicodedata.category(char) == "Cc"), None)
    if control is not None:
        return f"its name contains the control character {control!r}"
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    return f"its name is longer than {_MAX_NAME_BYTES} bytes" if size_bytes > _MAX_NAME_BYTES else ""


def mirror(uri: GsUri, version: str = "") -> Path:
    """Return the local directory (or file) that stands for `uri`; it need not exist.

    Args:
        version: hexadecimal digits that identify one version of an input; empty for an output.

    Raises:
        UserError: a component of the name is too long for a file name.
    """
    parts = [quote(part, safe=" ") for part in uri.path.split("/")]
    if longest := next((part for part in parts if len(part) > _MAX_PART_BYTES), None):
        raise UserError(
            f"{uri}: {unquote(longest)[:40]}… is too long for a directory name on this machine",
            f"choose a name with components of at most {_MAX_PART_BYTES} letters, or a third as many non-ASCII ones",
        )
    return default_cache_dir() / "gs" / uri.bucket / Path(*parts) / f"{_MIRROR_MARK}{version}" / parts[-1]


def uri_of(path: Path) -> GsUri | None:
    """Return the URI that `path` stands for if it is a mirror or lies in one; None for every other path."""
    try:
        relative = path.absolute().relative_to(default_cache_dir() / "gs")
    except (ValueError, UserError):
        return None
    bucket, *parts = relative.parts or ("",)
    at = next((i for i, part in enumerate(parts) if _VERSION.fullmatch(part)), None)
    if at is None:
        return None
    return GsUri(bucket, "/".join(unquote(part) for part in parts[:at] + parts[at + 2 :]))


def display_path(path: Path) -> str:
    """Return how messages name `path`: by its URI if it is a mirror."""
    return str(uri_of(path) or path)


def name_mirrors_by_uri(text: str) -> str:
    """Replace each path of a mirror, or of a partial directory next to one, in a message by the URI."""
    try:
        root = re.escape(str(default_cache_dir() / "gs"))
    except UserError:
        return text
    mirrors = rf"{root}/((?:[^/\n]+/)+?([^/\n]+))/@[0-9a-f]*/(?:\2|\.\2\.partial-[0-9a-f]+)"
    return re.sub(mirrors, lambda match: f"{SCHEME}{unquote(match[1])}", text)


def concurrent_modification_error(uri: GsUri) -> UserError:
    """Return the error of a reader that found another version at each attempt."""
    return UserError(f"{uri} keeps being modified concurrently", "find out what writes there, and run this again")
