"""Cloud Storage: Google's client with deadlines, and translation of its errors into UserErrors with a remedy.

STORAGE_EMULATOR_HOST=http://HOST:PORT sends every request to an emulator, as in all of Google's clients; no credentials
are needed then. google.cloud.storage is imported on first use, so that local runs do not wait for it.
"""

from __future__ import annotations

import json
import math
import os
import random
import secrets
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from components.platform.console import say, say_if_slow
from components.platform.errors import UserError
from components.platform.storage.downloads.http_download import require_http
from components.platform.storage.object_storage.object_store import (
    NO_VERSION,
    WORKERS,
    ObjectMissing,
    StorageError,
    StoredObject,
    VersionConflict,
)
from components.platform.storage.object_storage.traffic import count_read, count_written
from components.platform.storage.uri import ObjectUri, concurrent_modification_error

# Google's announcements about versions of Python and gRPC that it will require years from now.
warnings.filterwarnings("ignore", category=FutureWarning, module="google")

EMULATOR_VARIABLE = "STORAGE_EMULATOR_HOST"
DEADLINE_S = 30.0
"""For one request including all its retries. The client's default is two minutes, for each of many requests."""
TIMEOUT_S = (5.0, 60.0)
"""To connect; and between two bytes of a response."""
_READS = 20
"""Attempts to read an object that is replaced between the request for its generation and that for its content."""
_PRECONDITION = "ifGenerationMatch"
"""Part of a request's URL, and thus of the message of its error, if the request had a precondition."""
_RETRY_REMEDY = f"check the network and {EMULATOR_VARIABLE}; run the same command again when the server answers"
_writable: set[tuple[str, str]] = set()
"""(server, bucket) that this process has written, see `GcsStore.require_writable`."""
_guard = threading.Lock()
REPORT_RETRY_AFTER_S = 2.0
"""Time from a request's first failure to the message that it is being retried; shorter outages are not reported."""


_OTHER_ANSWERS = (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError)
"""What the client raises for unexpected responses: a proxy's HTML page, or JSON of another shape. RuntimeError: JSON
nested too deep, and urllib3's error for a redirect whose compressed body is truncated."""


def bucket_of(uri: ObjectUri) -> Any:
    """Return the google.cloud.storage.Bucket of `uri` without a request. UserError if there are no credentials."""
    with translate_gcs_errors(uri):
        return _client().bucket(uri.bucket)


def request_options() -> dict[str, Any]:
    """Return the keyword arguments of every client call: time-outs, and retries with a deadline.

    All calls here can be retried: they are reads, or writes of an object that has one writer or under a precondition.
    """
    from google.api_core.retry import Retry
    from google.cloud.storage.retry import DEFAULT_RETRY

    # The client's default starts with one second, too long for the small requests after each training iteration.
    # with_timeout() would keep the rest of the default, but there is no with_on_error().
    retry = Retry(
        predicate=DEFAULT_RETRY._predicate,
        initial=0.25,
        maximum=8.0,
        multiplier=2.0,
        timeout=DEADLINE_S,
        on_error=_RetryReporter(),
    )
    return {"timeout": TIMEOUT_S, "retry": retry}


class GcsStore:
    """Cloud Storage as an ObjectStore. Versions are generations."""

    def read(self, uri: ObjectUri) -> tuple[bytes | None, str]:
        from google.api_core.exceptions import NotFound, PreconditionFailed

        bucket = bucket_of(uri)
        for attempt in range(_READS):
            time.sleep(random.uniform(0, 0.02 * attempt))  # spreads readers and writers that contend for one object
            with translate_gcs_errors(uri):
                blob = bucket.get_blob(uri.path, **request_options())
                if blob is None:
                    _require_bucket(bucket)
                    return None, NO_VERSION
                generation = blob.generation  # the download overwrites it, from a header that not every server sends
                try:
                    text = blob.download_as_bytes(
                        if_generation_match=generation, checksum="crc32c", **request_options()
                    )
                except (NotFound, PreconditionFailed):
                    continue  # replaced between the two requests
                count_read(len(text))
                return text, str(int(generation))
        raise concurrent_modification_error(uri)

    def read_range(self, uri: ObjectUri, start: int = 0, end: int | None = None) -> bytes:
        blob = bucket_of(uri).blob(uri.path)
        # The checksum that the server reports is of the whole object.
        part: dict[str, Any] = (
            {"checksum": "crc32c"} if end is None else {"start": start, "end": end - 1, "checksum": None}
        )
        with translate_gcs_errors(uri), _translate_missing(uri):
            content = bytes(blob.download_as_bytes(**part, **request_options()))
        count_read(len(content))
        return content

    def head(self, uri: ObjectUri) -> StoredObject | None:
        bucket = bucket_of(uri)
        with translate_gcs_errors(uri):
            blob = bucket.get_blob(uri.path, **request_options())
            if blob is None:
                _require_bucket(bucket)
            return _describe(blob) if blob else None

    def objects(self, folder: ObjectUri) -> list[StoredObject]:
        prefix = f"{folder.path}/" if folder.path else None
        with translate_gcs_errors(folder):
            return [_describe(blob) for blob in bucket_of(folder).list_blobs(prefix=prefix, **request_options())]

    def write(self, uri: ObjectUri, content: bytes, version: str) -> StoredObject:
        from google.api_core.exceptions import PreconditionFailed

        blob = bucket_of(uri).blob(uri.path)
        with translate_gcs_errors(uri):
            try:
                blob.upload_from_string(
                    content,
                    "application/json",
                    if_generation_match=int(version or 0),
                    checksum="crc32c",
                    **request_options(),
                )
            except PreconditionFailed:
                raise VersionConflict(uri) from None
            count_written(len(content))
            return _describe(blob)

    def require_writable(self, uri: ObjectUri) -> None:
        """Check once per process and bucket that it can be written: write and delete an object next to `uri`.

        The method testIamPermissions would not write, but it knows no conditions on names of objects, and emulators do
        not have it. Preconditions need no check: they are part of the API from its beginning.
        """
        from google.api_core.exceptions import PreconditionFailed

        key = (_server(), uri.bucket)
        with _guard:
            if key in _writable:
                return
            probe = ObjectUri(uri.scheme, uri.bucket, f"{uri.path}.condition-{secrets.token_hex(4)}")
            blob = bucket_of(probe).blob(probe.path)
            # Failed: a first attempt, whose answer was lost, has written it.
            with translate_gcs_errors(uri), suppress(PreconditionFailed):
                blob.upload_from_string(b"probe", if_generation_match=0, checksum="crc32c", **request_options())
            try:
                self.delete(probe)
            except UserError as error:
                say(f"warning: the object that checked that the bucket can be written remains: {error.problem}")
            _writable.add(key)

    def upload(self, files: Sequence[tuple[Path, ObjectUri]]) -> list[datetime]:
        from google.cloud.storage import transfer_manager as tm

        if not files:
            return []
        pairs = [(str(path), bucket_of(uri).blob(uri.path)) for path, uri in files]
        with translate_gcs_errors(files[0][1]):
            tm.upload_many(
                pairs,
                worker_type=tm.THREAD,
                max_workers=WORKERS,
                raise_exception=True,
                upload_kwargs={"checksum": "crc32c", **request_options()},
            )
        count_written(sum(os.path.getsize(path) for path, _blob in pairs))
        return [blob.time_created for _path, blob in pairs if blob.time_created]

    def download(self, objects: Sequence[tuple[ObjectUri, Callable[[], BinaryIO]]]) -> None:
        from google.cloud.storage import transfer_manager as tm

        if not objects:
            return
        first = objects[0][0]
        with translate_gcs_errors(first), _translate_missing(first), ExitStack() as stack:
            files = [(bucket_of(uri).blob(uri.path), stack.enter_context(create())) for uri, create in objects]
            tm.download_many(
                files,
                worker_type=tm.THREAD,
                max_workers=WORKERS,
                raise_exception=True,
                download_kwargs={"checksum": "crc32c", **request_options()},
            )
            count_read(sum(stream.tell() for _blob, stream in files))

    def download_to(self, uri: ObjectUri, path: Path, version: str = NO_VERSION) -> None:
        generation = int(version) if version else None
        with translate_gcs_errors(uri), _translate_missing(uri):
            bucket_of(uri).blob(uri.path).download_to_filename(
                str(path), checksum="crc32c", if_generation_match=generation, **request_options()
            )
        count_read(path.stat().st_size)

    def delete(self, uri: ObjectUri, version: str = NO_VERSION) -> None:
        from google.api_core.exceptions import NotFound, PreconditionFailed

        generation = int(version) if version else None
        # Missing: deleted by another, or by a first attempt whose answer was lost.
        with translate_gcs_errors(uri, missing=False), suppress(NotFound, PreconditionFailed):
            bucket_of(uri).blob(uri.path).delete(if_generation_match=generation, **request_options())

    def server_time(self, uri: ObjectUri) -> datetime:
        import requests

        bucket = bucket_of(uri)
        with translate_gcs_errors(uri):
            # The client has no call for it. Every response has a Date header, even one that denies access.
            url = f"{bucket.client._connection.API_BASE_URL}/storage/v1/b/{uri.bucket}?fields=name"
            try:
                ask = request_options()["retry"](partial(bucket.client._http.get, url, timeout=TIMEOUT_S))
                return parsedate_to_datetime(ask().headers["Date"])
            except (KeyError, ValueError, TypeError):
                raise StorageError(
                    f"{uri}: the server's response has no valid Date header", "use another server"
                ) from None
            except requests.exceptions.RequestException as error:
                raise StorageError(
                    f"{uri}: object storage at {_server()} does not answer: {_short_message(error)}", _RETRY_REMEDY
                ) from None


def _require_bucket(bucket: Any) -> None:
    """Raise NotFound unless the bucket exists: a missing object and a missing bucket are both 404."""
    next(iter(bucket.list_blobs(max_results=1, **request_options())), None)


def _describe(blob: Any) -> StoredObject:
    return StoredObject(
        name=blob.name,
        size_bytes=int(blob.size or 0),
        version=str(int(blob.generation)),
        crc32c=blob.crc32c or "",
        updated=blob.updated,
    )


@contextmanager
def _translate_missing(uri: ObjectUri) -> Iterator[None]:
    """Turn the client's exceptions for objects that do not exist or have another generation into ObjectMissing."""
    from google.api_core.exceptions import NotFound, PreconditionFailed

    try:
        yield
    except (NotFound, PreconditionFailed) as error:
        if isinstance(error, PreconditionFailed) and _PRECONDITION not in str(error):
            raise
        url = getattr(getattr(error, "response", None), "url", None) or ""
        path = unquote(urlsplit(url).path.rpartition("/o/")[2])
        raise ObjectMissing(ObjectUri(uri.scheme, uri.bucket, path) if path else uri, _short_message(error)) from None


@contextmanager
def translate_gcs_errors(uri: ObjectUri, missing: bool = True) -> Iterator[None]:
    """Turn the client's exceptions about `uri` into UserErrors.

    PreconditionFailed passes through: callers handle it. So does NotFound if `missing` is False.
    """
    import requests
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.cloud.storage.exceptions import DataCorruption

    waiting = f"waiting for object storage at {_server()} to answer about {uri}, at most {TIMEOUT_S[1]:.0f} s"
    try:
        with say_if_slow(waiting):
            yield
    except api.PreconditionFailed as error:
        if _PRECONDITION in str(error):
            raise
        problem = f"{uri}: {_server()} reports a failed precondition that was not requested: {_short_message(error)}"
        raise StorageError(problem, f"check {EMULATOR_VARIABLE} and which server answers there") from None
    except api.NotFound as error:
        if not missing:
            raise
        raise UserError(f"{uri}: {_short_message(error)}", f"check the name; is there a bucket {uri.bucket}?") from None
    except (api.Forbidden, api.Unauthorized) as error:
        raise StorageError(
            f"{uri}: access is denied: {_short_message(error)}",
            f"grant this account the role roles/storage.objectAdmin on gs://{uri.bucket} (also if bucket and account "
            "are in different projects), or use another account",
        ) from None
    except auth.DefaultCredentialsError:
        raise StorageError(
            f"{uri}: no Google Cloud credentials found",
            "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"
            f" (for an emulator: {EMULATOR_VARIABLE}=http://HOST:PORT)",
        ) from None
    except auth.GoogleAuthError as error:
        raise StorageError(
            f"{uri}: the Google Cloud credentials are rejected: {error}", "run gcloud auth application-default login"
        ) from None
    except (api.RetryError, api.ServerError, requests.ConnectionError, requests.Timeout) as error:
        raise StorageError(
            f"{uri}: object storage at {_server()} does not answer: {_short_message(error)}", _RETRY_REMEDY
        ) from None
    except DataCorruption as error:
        raise UserError(f"{uri}: the data was corrupted in transit: {error}", "run the same command again") from None
    except api.GoogleAPICallError as error:
        raise StorageError(f"{uri}: {_short_message(error)}", "see the message of the service") from None
    except (requests.RequestException, zlib.error, *_OTHER_ANSWERS) as error:
        raise StorageError(
            f"{uri}: the response of {_server()} is not Cloud Storage's API: {_short_message(error)}",
            f"check {EMULATOR_VARIABLE} and which server answers there",
        ) from None


class _RetryReporter:
    """Callback for each failure of a request that is retried; reports it once if the retries take a while."""

    def __init__(self) -> None:
        self._first_s = -math.inf
        self._said = False

    def __call__(self, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s - self._first_s > DEADLINE_S:  # the last failure was of another request, which has given up by now
            self._first_s = now_s
        waited_s = now_s - self._first_s
        if waited_s >= REPORT_RETRY_AFTER_S and not self._said:
            self._said = True
            left_s = DEADLINE_S - waited_s
            say(f"waiting for object storage at {_server()}, {left_s:.0f} s more at most: {_short_message(error)}")


def _server() -> str:
    return os.environ.get(EMULATOR_VARIABLE, "storage.googleapis.com")


@cache
def _client() -> Any:
    from google.cloud import storage

    if emulator := os.environ.get(EMULATOR_VARIABLE):
        try:
            require_http(emulator)
        except UserError:
            problem = f"{EMULATOR_VARIABLE}={emulator!r} is not the URL of a server"
            raise UserError(problem, f"write it as {EMULATOR_VARIABLE}=http://HOST:PORT") from None
    # A project is needed only to list and create buckets, which is not done here.
    return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT", "unset"))


def _short_message(error: Exception) -> str:
    """Return what happened, without the request's URL and urllib3's chain of causes."""
    cause = getattr(error, "cause", None) or error
    if cause.args:  # a requests.ConnectionError wraps urllib3's MaxRetryError, which wraps the real reason
        cause = getattr(cause.args[0], "reason", None) or cause
    line = " ".join(_message(cause).split()) or type(cause).__name__
    return line if len(line) <= 200 else f"{line[:200]}…"


def _message(error: BaseException) -> str:
    """Return the message of an error; for an HTTP response only the service's own message.

    google.api_core writes "GET URL: BODY", and after a failed download "GET URL: BODY: (what requests expected)"; the
    body is JSON, a line of text or an HTML page.
    """
    text = str(getattr(error, "message", "") or error)
    _method, scheme_separator, body = text.partition("://")
    _url, separator, body = body.partition(": ")
    if not scheme_separator or not separator or not isinstance(getattr(error, "code", None), int):
        return text
    body = body.split(": ('Request failed with status code'", 1)[0].strip()
    status = f"{error.code:d} {getattr(error.code, 'phrase', '')}".strip()  # type: ignore[attr-defined]
    with suppress(ValueError, RecursionError, TypeError, LookupError):
        return f"{json.loads(body)['error']['message']} ({status})"
    return status if not body or body[0] in "{[<" else f"{body} ({status})"
