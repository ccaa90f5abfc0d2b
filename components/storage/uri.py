"""gs:// URIs, and the local directory that stands for each: its mirror.

A step works on files. So an artifact in object storage has a mirror below the cache directory: inputs are downloaded
into it, and what is published into it goes to the bucket first (components.storage.publish). Which path is the mirror
of which URI is computed, never stored, so that every part of a step may ask:

    gs://bucket/runs/7/vocab  <->  $MLGO_CACHE_DIR/gs/bucket/runs/7/vocab/@/vocab

The directory "@" keeps the mirror of gs://bucket/a apart from that of gs://bucket/a/b; a component of a name that is
called so is written %40.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from components.console import UserError
from components.storage.cache import default_cache_dir

SCHEME = "gs://"
_HERE = "@"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


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
        UserError: another scheme, a URI without a bucket or a path, a file:// URI of another host.
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


def mirror(uri: GsUri) -> Path:
    """The local directory (or file) that stands for `uri`; it need not exist."""
    parts = [quote(part, safe=" ") if part != _HERE else "%40" for part in uri.path.split("/")]
    return default_cache_dir() / "gs" / uri.bucket / Path(*parts) / _HERE / parts[-1]


def uri_of(path: Path) -> GsUri | None:
    """The URI that `path`, or the directory it is in, is the mirror of; None for every other path."""
    try:
        relative = path.absolute().relative_to(default_cache_dir() / "gs")
    except (ValueError, UserError):
        return None
    bucket, *parts = relative.parts or ("",)
    if _HERE not in parts:
        return None
    at = parts.index(_HERE)
    return GsUri(bucket, "/".join(unquote(part) for part in parts[:at] + parts[at + 2 :]))


def shown(path: Path) -> str:
    """How messages name `path`: by its URI if it is a mirror."""
    return str(uri_of(path) or path)
