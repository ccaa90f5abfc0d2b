"""S3, and servers that speak its protocol such as MinIO and SeaweedFS: boto3's client, and translation of its errors.

Configuration is boto3's own: AWS_ENDPOINT_URL_S3=http://HOST:PORT (or AWS_ENDPOINT_URL) for other servers than
Amazon's, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, profiles. boto3 is imported on first use.

Versions are ETags. The same content has the same ETag, so what has several writers has a random word of each
(shared_write.py).
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from components.platform.console import say_if_slow
from components.platform.errors import UserError
from components.platform.storage.downloads.retry import GaveUp, retry
from components.platform.storage.object_storage.object_store import (
    NO_VERSION,
    WORKERS,
    ObjectMissing,
    StorageError,
    StoredObject,
    VersionConflict,
)
from components.platform.storage.object_storage.traffic import count_read, count_written
from components.platform.storage.uri import ObjectUri

ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Environment variables with the URL of a server other than Amazon's, the first that is set counts."""
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
DEADLINE_S = 30.0
"""Time for which the download of an object is repeated; each of its requests has ATTEMPTS."""
ATTEMPTS = 6
"""Attempts of a request. With the client's pauses (random, up to 1, 2, 4, 8 and 16 s) about as long as DEADLINE_S."""
TIMEOUT_S = (5.0, 60.0)
"""To connect; and between two bytes of a response."""
SINGLE_PUT_BYTES = 128 << 20
"""Size up to which a file is one request with a checksum; larger ones are uploaded in parts."""
_BROKEN = (http.client.HTTPException, ConnectionError, TimeoutError)
_READ_BYTES = 1 << 20
_RETRY_REMEDY = f"check the network and {ENDPOINT_VARIABLES[0]}; run the same command again when the server answers"

_NO_ETAG = f'"{"0" * 32}"'
_conditional: set[tuple[str, str]] = set()
"""(server, bucket) that refused writes under conditions that did not hold, see `S3Store.require_writable`."""
_guard = threading.Lock()

T = TypeVar("T")


class S3Store:
    """S3 as an ObjectStore."""

    def read(self, uri: ObjectUri) -> tuple[bytes | None, str]:
        try:
            content, version = self._get(uri)
        except ObjectMissing:
            with translate_s3_errors(uri):
                _require_bucket(uri)
            return None, NO_VERSION
        return content, version

    def read_range(self, uri: ObjectUri, start: int = 0, end: int | None = None) -> bytes:
        part = {} if not start and end is None else {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        return self._get(uri, **part)[0]

    def head(self, uri: ObjectUri) -> StoredObject | None:
        client = _client()
        with translate_s3_errors(uri):
            try:
                response = client.head_object(Bucket=uri.bucket, Key=uri.path)
            except client.exceptions.ClientError as error:
                if _status(error) != 404:
                    raise
                _require_bucket(uri)
                return None
            return _describe(uri.path, response["ContentLength"], response["ETag"], response["LastModified"])

    def objects(self, folder: ObjectUri) -> list[StoredObject]:
        client = _client()
        prefix = f"{folder.path}/" if folder.path else ""
        with translate_s3_errors(folder):
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=folder.bucket, Prefix=prefix)
            return [
                _describe(item["Key"], item["Size"], item["ETag"], item["LastModified"])
                for page in pages
                for item in page.get("Contents", [])
            ]

    def write(self, uri: ObjectUri, content: bytes, version: str) -> StoredObject:
        self.require_writable(uri)
        client = _client()
        condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
        with translate_s3_errors(uri):
            try:
                response = _put(client, uri, content, **condition)
            except client.exceptions.ClientError as error:
                # 412: the object has another version; 409: another write is under way; 404: it was removed.
                if _status(error) in (409, 412) or (version and _code(error) == "NoSuchKey"):
                    raise VersionConflict(uri) from None
                raise
            return _describe(uri.path, len(content), response["ETag"], _date(response))

    def require_writable(self, uri: ObjectUri) -> None:
        """Check once per process and bucket that it can be written, and refuses writes whose condition does not hold.

        Without that, of two writers both would believe that they have won. An object next to `uri`, with a name of its
        own, is written under conditions that must fail: If-Match of a version that does not exist, and once it exists
        this again and If-None-Match. It is deleted.

        Raises:
            StorageError: access is denied, or the server ignores or rejects one of the headers.
        """
        key = (_server(), uri.bucket)
        with _guard:
            if key in _conditional:
                return
            client = _client()
            with translate_s3_errors(uri):
                _require_bucket(uri)  # SeaweedFS denies writes to a missing bucket, or creates it for administrators
            probe = ObjectUri(uri.scheme, uri.bucket, f"{uri.path}.condition-{secrets.token_hex(4)}")
            try:
                _require_refused(client, uri, probe, "If-Match", IfMatch=_NO_ETAG)
                with translate_s3_errors(uri):
                    _put(client, probe, b"probe")
                _require_refused(client, uri, probe, "If-Match", IfMatch=_NO_ETAG)
                _require_refused(client, uri, probe, "If-None-Match", IfNoneMatch="*")
            finally:
                with suppress(UserError):
                    self.delete(probe)
            _conditional.add(key)

    def upload(self, files: Sequence[tuple[Path, ObjectUri]]) -> list[datetime]:
        client = _client()

        def upload_one(pair: tuple[Path, ObjectUri]) -> datetime | None:
            path, uri = pair
            with translate_s3_errors(uri):
                if path.stat().st_size <= SINGLE_PUT_BYTES:
                    return _date(_put(client, uri, path.read_bytes()))
                with open(path, "rb") as stream:
                    client.upload_fileobj(stream, uri.bucket, uri.path)
                count_written(path.stat().st_size)
            stored = self.head(uri)
            return stored.updated if stored else None

        return [updated for updated in _parallel(upload_one, files) if updated]

    def download(self, objects: Sequence[tuple[ObjectUri, Callable[[], BinaryIO]]]) -> None:
        with ExitStack() as stack:
            files = [(uri, stack.enter_context(create())) for uri, create in objects]
            _parallel(lambda pair: self._download(*pair), files)

    def download_to(self, uri: ObjectUri, path: Path, version: str = NO_VERSION) -> None:
        with open(path, "wb") as stream:
            self._download(uri, stream, version)

    def delete(self, uri: ObjectUri, version: str = NO_VERSION) -> None:
        client = _client()
        if version:
            # Not every server supports conditional deletes, and one that does not ignores the condition.
            stored = self.head(uri)
            if stored is None or stored.version != version:
                return
        # Amazon's S3 does not say that there was no object; Cloud Storage's answer to S3's protocol does.
        with suppress(ObjectMissing), translate_s3_errors(uri):
            try:
                client.delete_object(Bucket=uri.bucket, Key=uri.path, **({"IfMatch": version} if version else {}))
            except client.exceptions.ClientError as error:
                if not version or _status(error) not in (404, 409, 412):
                    raise

    def server_time(self, uri: ObjectUri) -> datetime:
        client = _client()
        with translate_s3_errors(uri):
            try:
                response = client.head_bucket(Bucket=uri.bucket)
            except client.exceptions.ClientError as error:
                response = error.response  # an answer that denies access is dated, too
                if _status(error) not in (403, 404):
                    raise
        if (date := _date(response)) is None:
            raise StorageError(f"{uri}: the server's response has no valid Date header", "use another server")
        return date

    def _get(self, uri: ObjectUri, **more: str) -> tuple[bytes, str]:
        """Return content and version of an object; repeat the request if the connection breaks off."""
        client = _client()

        def get() -> tuple[bytes, str]:
            response = client.get_object(Bucket=uri.bucket, Key=uri.path, **more)
            return response["Body"].read(), str(response["ETag"])

        with translate_s3_errors(uri):
            content, version = _repeat_if_broken(get)
        count_read(len(content))
        return content, version

    def _download(self, uri: ObjectUri, stream: BinaryIO, version: str = NO_VERSION) -> None:
        client = _client()
        condition = {"IfMatch": version} if version else {}

        def get() -> None:
            stream.seek(0)
            stream.truncate()
            body = client.get_object(Bucket=uri.bucket, Key=uri.path, **condition)["Body"]
            stream.writelines(body.iter_chunks(_READ_BYTES))

        with translate_s3_errors(uri):
            try:
                _repeat_if_broken(get)
            except client.exceptions.ClientError as error:
                if _status(error) == 412:
                    raise ObjectMissing(uri, "it was replaced") from None
                raise
        count_read(stream.tell())


def _require_bucket(uri: ObjectUri) -> None:
    """Let the client raise unless the bucket exists: a missing object and a missing bucket are both 404."""
    _client().list_objects_v2(Bucket=uri.bucket, Prefix=uri.path, MaxKeys=1)


def _put(client: Any, uri: ObjectUri, content: bytes, **more: Any) -> Any:
    # MD5 because every server verifies it; newer checksums are unknown to some.
    md5 = base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
    kind = "application/json" if "IfMatch" in more or "IfNoneMatch" in more else "application/octet-stream"
    answer = client.put_object(Bucket=uri.bucket, Key=uri.path, Body=content, ContentMD5=md5, ContentType=kind, **more)
    count_written(len(content))
    return answer


def _require_refused(client: Any, uri: ObjectUri, probe: ObjectUri, header: str, **condition: str) -> None:
    with translate_s3_errors(uri):
        try:
            _put(client, probe, b"probe", **condition)
            how = f"ignores the header {header}"
        except client.exceptions.ClientError as error:
            if _status(error) in (409, 412) or _code(error) == "NoSuchKey":
                return
            if _status(error) not in (400, 405, 501):
                raise
            how = f"rejects the header {header}: {_message(error)}"
    raise StorageError(
        f"s3://{probe.bucket}: the server at {_server()} {how}, so that concurrent writers would overwrite each other",
        "use a server with conditional writes: Amazon S3, a newer MinIO or SeaweedFS, or gs:// for Cloud Storage",
    )


@contextmanager
def translate_s3_errors(uri: ObjectUri) -> Iterator[None]:
    """Turn the client's exceptions about `uri` into UserErrors; into ObjectMissing if the object does not exist."""
    import botocore.exceptions as boto
    import urllib3.exceptions
    from boto3.exceptions import Boto3Error

    waiting = f"waiting for object storage at {_server()} to answer about {uri}, at most {TIMEOUT_S[1]:.0f} s"
    try:
        with say_if_slow(waiting):
            yield
    except boto.ClientError as error:
        raise _as_user_error(uri, error) from None
    except (boto.NoCredentialsError, boto.PartialCredentialsError):
        raise StorageError(
            f"{uri}: no credentials for S3 found", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        ) from None
    except (boto.CredentialRetrievalError, boto.TokenRetrievalError, boto.UnauthorizedSSOTokenError) as error:
        raise StorageError(f"{uri}: the credentials for S3 cannot be had: {error}", "log in again") from None
    except (
        boto.ConnectionError,
        boto.HTTPClientError,
        boto.IncompleteReadError,
        *_BROKEN,
        urllib3.exceptions.HTTPError,
    ) as error:
        raise StorageError(
            f"{uri}: object storage at {_server()} does not answer: {_message(error)}", _RETRY_REMEDY
        ) from None
    except (boto.BotoCoreError, Boto3Error, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise StorageError(
            f"{uri}: the response of {_server()} is not S3's API: {_message(error)}",
            f"check {ENDPOINT_VARIABLES[0]} and which server answers there",
        ) from None


def _as_user_error(uri: ObjectUri, error: Any) -> UserError:
    status, code, message = _status(error), _code(error), _message(error)
    if code == "NoSuchBucket":
        return UserError(f"{uri}: {message}", f"check the name; is there a bucket {uri.bucket}?")
    if status == 404:
        return ObjectMissing(uri, message)
    if code in ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"):
        return StorageError(f"{uri}: the bucket is in another region: {message}", "set AWS_REGION to its region")
    if status in (401, 403):
        return StorageError(
            f"{uri}: access is denied: {message}",
            f"let this account list, read, write and delete objects of the bucket {uri.bucket}, or use another account",
        )
    if status >= 500 or status == 429:
        return StorageError(f"{uri}: object storage at {_server()} does not answer: {message}", _RETRY_REMEDY)
    return StorageError(f"{uri}: {message}", "see the message of the service")


@cache
def _client() -> Any:
    import boto3
    import botocore.exceptions as boto
    from botocore.config import Config

    config = Config(
        connect_timeout=TIMEOUT_S[0],
        read_timeout=TIMEOUT_S[1],
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        max_pool_connections=2 * WORKERS,
        # Checksums that older servers do not know only where an operation needs one.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        return boto3.session.Session().client("s3", config=config)
    except (boto.BotoCoreError, ValueError) as error:
        variable = next((name for name in ENDPOINT_VARIABLES if os.environ.get(name)), "")
        if isinstance(error, ValueError) and variable:
            problem = f"{variable}={os.environ[variable]!r} is not the URL of a server"
            raise UserError(problem, f"write it as {variable}=http://HOST:PORT") from None
        raise UserError(f"S3 cannot be used: {error}", "check AWS_PROFILE, AWS_REGION and ~/.aws/config") from None


def _server() -> str:
    with suppress(Exception):  # for messages only
        return str(_client().meta.endpoint_url)
    return "s3.amazonaws.com"


def _repeat_if_broken(request: Callable[[], T]) -> T:
    """Repeat a request whose answer breaks off: botocore repeats only until the answer begins."""
    import botocore.exceptions as boto
    import urllib3.exceptions

    broken = (
        boto.IncompleteReadError,
        boto.ReadTimeoutError,
        boto.ResponseStreamingError,
        urllib3.exceptions.HTTPError,
        *_BROKEN,
    )
    try:
        return retry(request, lambda error: isinstance(error, broken), DEADLINE_S, lambda *_: None, first_pause_s=0.25)
    except GaveUp as error:
        raise error.cause from None


def _parallel(function: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise


def _describe(name: str, size_bytes: Any, etag: Any, updated: datetime | None) -> StoredObject:
    return StoredObject(str(name), int(size_bytes), str(etag), "", updated)


def _date(response: Mapping[str, Any]) -> datetime | None:
    with suppress(KeyError, ValueError, TypeError):
        return parsedate_to_datetime(response["ResponseMetadata"]["HTTPHeaders"]["date"])
    return None


def _status(error: Any) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _message(error: Any) -> str:
    """Return what happened in one line; for an error that the service reports its own message."""
    text = str(error)
    with suppress(AttributeError, TypeError):
        reported = error.response.get("Error", {})
        text = f"{reported.get('Message') or reported.get('Code') or 'no message'} ({_status(error)})"
    line = " ".join(text.split()) or type(error).__name__
    return line if len(line) <= 200 else f"{line[:200]}…"
