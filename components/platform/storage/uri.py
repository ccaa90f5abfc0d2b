"""URIs of places in object storage, and their mirrors, the local directories that stand for them.

Steps work on files. So each artifact in object storage has a mirror below the cache directory: inputs are downloaded
into it, and outputs published into it are uploaded first (publish.py). The mirror of a URI is computed, never stored,
so that every part of a step can derive one from the other:

    gs://bucket/runs/7/vocab  <->  $MLGO_CACHE_DIR/gs/bucket/runs/7/vocab/@/vocab            for writing
                              <->  $MLGO_CACHE_DIR/gs/bucket/runs/7/vocab/@<version>/vocab   one version, for reading

The directory "@" separates the mirror of gs://bucket/a from that of gs://bucket/a/b; an "@" in a name is written %40.
Inputs have one mirror per version (object_storage/fetch.py), so that no input changes while it is read. The
mirrors of s3:// and of every other scheme are below a directory named after the scheme.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, unquote

from components.platform.errors import UserError
from components.platform.storage.cache import default_cache_dir

GS, S3, KFP_LOCAL = "gs", "s3", "kfp-local"
SCHEMES = (GS, S3, KFP_LOCAL)
"""Schemes of object storage: Cloud Storage, S3 and servers that speak its protocol, and the local directories that
Kubeflow Pipelines copies (components.platform.storage.object_storage.kfp_local; only the launcher writes such URIs)."""
REMOTE_SCHEMES = (GS, S3)
"""Schemes of places that every machine reaches."""
USAGE = "gs://BUCKET/PATH or s3://BUCKET/PATH"
"""How messages describe a URI in object storage."""
_MIRROR_MARK = "@"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_KFP_FOLDER = re.compile(r"[a-z0-9]+")
"""Folder in a kfp-local:// URI that Kubeflow Pipelines names after its own scheme, for example minio."""
_VERSION = re.compile(r"@[0-9a-f]*")
_MAX_NAME_BYTES = 1024
"""Limit of Cloud Storage for an object's name, in UTF-8."""
_MAX_PART_BYTES = 220
"""Limit for a component of a mirror's path: file systems allow 255, and a partial directory's name is longer."""


@dataclass(frozen=True)
class ObjectUri:
    """A place in object storage.

    Attributes:
        scheme: one of SCHEMES.
        path: without a slash at either end; it may be empty and then names the whole bucket.
    """

    scheme: str
    bucket: str
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.path}"

    def __truediv__(self, name: str) -> ObjectUri:
        return replace(self, path=f"{self.path}/{name}" if self.path else name)


Location = ObjectUri | Path
"""What an option names: an object or folder in object storage, or a local file or directory."""


@dataclass(frozen=True)
class Words:
    """The words that an option takes in addition to a path or a URI.

    A word has its meaning whatever files are in the working directory. A path that equals a word is written ./WORD.

    Attributes:
        words: whole values: "pretrained".
        prefixes: beginnings of values that are no paths, either: "git:".
    """

    words: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and (text in self.words or (text.startswith(self.prefixes) if text else False))

    def absolute(self, text: str) -> str:
        """Return the absolute path of a file or directory that exists here; words, URIs and others as they are."""
        return text if not text or text in self or not os.path.exists(text) else os.path.abspath(text)

    def path(self, path: Path) -> Path:
        """Return `path`, absolute if its text would be a word: Path drops the ./ of ./WORD."""
        return path.absolute() if str(path) in self else path


NO_WORDS = Words()


def parse_location(text: str) -> Location:
    """Parse a path option: gs://BUCKET/PATH, s3://BUCKET/PATH, file:///PATH or a path.

    Raises:
        UserError: another scheme; a URI without a bucket or a path, or with a name that no object can have; a file://
            URI of another host.
    """
    scheme, separator, rest = text.partition("://")
    if separator and scheme in SCHEMES:
        return _parse_object_uri(text, scheme, rest)
    if text.startswith("file://"):
        host, slash, path = text.removeprefix("file://").partition("/")
        path = unquote(slash + path)
        if host not in ("", "localhost") or not path or "\0" in path:
            raise UserError(f"{text} is not a file on this machine", "write it as file:///PATH, with three slashes")
        return Path(path)
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", text):
        raise UserError(f"{text} has an unsupported scheme", f"use {USAGE}, file:///PATH or a path")
    return Path(text)


def _parse_object_uri(text: str, scheme: str, rest: str) -> ObjectUri:
    bucket, _slash, path = rest.partition("/")
    path = path.strip("/")
    remedy = f"write it as {scheme}://BUCKET/PATH"
    if not bucket:
        raise UserError(f"{text} has no bucket", remedy)
    if not (_KFP_FOLDER if scheme == KFP_LOCAL else _BUCKET).fullmatch(bucket):
        raise UserError(
            f"{text}: {bucket!r} is not a valid bucket name",
            "bucket names have 3 to 63 characters: a-z, 0-9, - _ and ., a letter or digit first and last",
        )
    if not path or any(part in ("", ".", "..") for part in path.split("/")):
        raise UserError(f"{text} has no path in the bucket {bucket}", remedy)
    if problem := find_name_problem(path):
        raise UserError(f"{text!r} is not a valid place in object storage: {problem}", "choose another name")
    return ObjectUri(scheme, bucket, path)


def in_object_storage(text: str) -> bool:
    """Return whether `text` is spelled as a URI of object storage, valid or not."""
    scheme, separator, _rest = text.partition("://")
    return bool(separator) and scheme in SCHEMES


def find_name_problem(name: str) -> str:
    """Return why an object cannot have this name (it could not be read or listed again), or "" if it can."""
    control = next((char for char in name if unicodedata.category(char) == "Cc"), None)
    if control is not None:
        return f"its name contains the control character {control!r}"
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    return f"its name is longer than {_MAX_NAME_BYTES} bytes" if size_bytes > _MAX_NAME_BYTES else ""


def mirror(uri: ObjectUri, version: str = "") -> Path:
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
    return default_cache_dir() / uri.scheme / uri.bucket / Path(*parts) / f"{_MIRROR_MARK}{version}" / parts[-1]


def uri_of(path: Path) -> ObjectUri | None:
    """Return the URI that `path` stands for if it is a mirror or lies in one; None for every other path."""
    try:
        relative = path.absolute().relative_to(default_cache_dir())
    except (ValueError, UserError):
        return None
    if len(relative.parts) < 2 or relative.parts[0] not in SCHEMES:
        return None
    scheme, bucket, *parts = relative.parts
    at = next((i for i, part in enumerate(parts) if _VERSION.fullmatch(part)), None)
    if at is None:
        return None
    return ObjectUri(scheme, bucket, "/".join(unquote(part) for part in parts[:at] + parts[at + 2 :]))


def display_path(path: Path) -> str:
    """Return how messages name `path`: by its URI if it is a mirror."""
    return str(uri_of(path) or path)


def name_mirrors_by_uri(text: str) -> str:
    """Replace each path of a mirror, or of a partial directory next to one, in a message by the URI."""
    try:
        root = re.escape(str(default_cache_dir()))
    except UserError:
        return text
    mirrors = rf"{root}/({'|'.join(SCHEMES)})/((?:[^/\n]+/)+?([^/\n]+))/@[0-9a-f]*/(?:\3|\.\3\.partial-[0-9a-f]+)"
    return re.sub(mirrors, lambda match: f"{match[1]}://{unquote(match[2])}", text)


def concurrent_modification_error(uri: ObjectUri) -> UserError:
    """Return the error of a reader that found another version at each attempt."""
    return UserError(f"{uri} keeps being modified concurrently", "find out what writes there, and run this again")
