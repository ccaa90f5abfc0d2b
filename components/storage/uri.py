"""gs:// URIs, and the local directory that stands for each: its mirror.

A step works on files. So an artifact in object storage has a mirror below the cache directory: inputs are downloaded
into it, and what is published into it goes to the bucket first (components.storage.publish). Which path is the mirror
of which URI is computed, never stored, so that every part of a step may ask:

    gs://bucket/runs/7/vocab  <->  $MLGO_CACHE_DIR/gs/bucket/runs/7/vocab/@/vocab            what is written there
                              <->  $MLGO_CACHE_DIR/gs/bucket/runs/7/vocab/@<version>/vocab   one version, to be read

The directory "@" keeps the mirror of gs://bucket/a apart from that of gs://bucket/a/b; an "@" in a name is written %40.
What is read has a mirror for each version (components.storage.versions), so that nothing changes under a reader.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from components.console import UserError
from components.storage.cache import default_cache_dir

SCHEME = "gs://"
_HERE = "@"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_VERSION = re.compile(r"@[0-9a-f]*")
_MAX_NAME_BYTES = 1024
"""Of an object in Cloud Storage, in UTF-8."""
_MAX_PART_BYTES = 220
"""Of a component of a mirror's path: file systems allow 255, and the name of a partial directory is longer."""


@dataclass(frozen=True)
class GsUri:
    """A place in object storage. `path` has no slash at either end and may be empty: the bucket itself."""

    bucket: str
    path: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.path}"

    def __truediv__(self, name: str) -> GsUri:
        return GsUri(self.bucket, f"{self.path}/{name}" if self.path else name)


def parse_place(text: str) -> GsUri | Path:
    """What a path option names: gs://BUCKET/PATH, file:///PATH or a path.

    Raises:
        UserError: another scheme, a URI without a bucket or a path or with a name that no object can have, a file://
            URI of another host.
    """
    if text.startswith(SCHEME):
        bucket, _slash, path = text.removeprefix(SCHEME).partition("/")
        path = path.strip("/")
        if not bucket:
            raise UserError(f"{text} names no bucket", "write it as gs://BUCKET/PATH")
        if not _BUCKET.fullmatch(bucket):
            raise UserError(
                f"{text}: {bucket!r} cannot be the name of a bucket",
                "names of buckets have 3 to 63 characters: a-z, 0-9, - _ and ., a letter or digit first and last",
            )
        if not path or any(part in ("", ".", "..") for part in path.split("/")):
            raise UserError(f"{text} names no place in the bucket {bucket}", "write it as gs://BUCKET/PATH")
        if problem := name_problem(path):
            raise UserError(f"{text!r} cannot be a place in object storage: {problem}", "choose another name")
        return GsUri(bucket, path)
    if text.startswith("file://"):
        host, slash, path = text.removeprefix("file://").partition("/")
        path = unquote(slash + path)
        if host not in ("", "localhost") or not path or "\0" in path:
            raise UserError(f"{text} names no file of this machine", "write it as file:///PATH, with three slashes")
        return Path(path)
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", text):
        raise UserError(f"{text}: artifacts are read and written at gs://, file:// or a path", "use one of these")
    return Path(text)


def name_problem(name: str) -> str:
    """Why no object can have this name, "" if one can: what is written under it could not be read or listed again."""
    control = next((char for char in name if unicodedata.category(char) == "Cc"), None)
    if control is not None:
        return f"the control character {control!r} in its name"
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    return f"its name is longer than {_MAX_NAME_BYTES} bytes" if size_bytes > _MAX_NAME_BYTES else ""


def mirror(uri: GsUri, version: str = "") -> Path:
    """The local directory (or file) that stands for `uri`; it need not exist.

    Args:
        version: hexadecimal digits that identify one content of what is read there; empty for what is written there.

    Raises:
        UserError: a component of the name is too long for a file name.
    """
    parts = [quote(part, safe=" ") for part in uri.path.split("/")]
    if longest := next((part for part in parts if len(part) > _MAX_PART_BYTES), None):
        raise UserError(
            f"{uri}: {unquote(longest)[:40]}… is too long for the name of a directory on this machine",
            f"choose a name with components of at most {_MAX_PART_BYTES} letters, or a third as many beyond ASCII",
        )
    return default_cache_dir() / "gs" / uri.bucket / Path(*parts) / f"{_HERE}{version}" / parts[-1]


def uri_of(path: Path) -> GsUri | None:
    """The URI that `path`, or the directory it is in, is the mirror of; None for every other path."""
    try:
        relative = path.absolute().relative_to(default_cache_dir() / "gs")
    except (ValueError, UserError):
        return None
    bucket, *parts = relative.parts or ("",)
    at = next((i for i, part in enumerate(parts) if _VERSION.fullmatch(part)), None)
    if at is None:
        return None
    return GsUri(bucket, "/".join(unquote(part) for part in parts[:at] + parts[at + 2 :]))


def shown(path: Path) -> str:
    """How messages name `path`: by its URI if it is a mirror."""
    return str(uri_of(path) or path)


def name_mirrors_by_uri(text: str) -> str:
    """A message with each path of a mirror, or of a partial directory next to it, replaced by the URI."""
    try:
        root = re.escape(str(default_cache_dir() / "gs"))
    except UserError:
        return text
    mirrors = rf"{root}/((?:[^/\n]+/)+?([^/\n]+))/@[0-9a-f]*/(?:\2|\.\2\.partial-[0-9a-f]+)"
    return re.sub(mirrors, lambda match: f"{SCHEME}{unquote(match[1])}", text)


def keeps_changing(uri: GsUri) -> UserError:
    """The error of a reader that found another version at each attempt."""
    return UserError(f"{uri} changes all the time", "find out who writes there, and run this again")
