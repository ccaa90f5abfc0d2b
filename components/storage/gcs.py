"""Google Cloud Storage's client, with deadlines, and its errors in words that name the remedy.

STORAGE_EMULATOR_HOST=http://HOST:PORT sends everything to an emulator, as all of Google's clients understand it; no
credentials are needed then. google.cloud.storage is imported on first use: who stays local need not wait for it.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

from components.console import UserError, say, say_if_slow
from components.storage.http_download import require_http
from components.storage.uri import GsUri, keeps_changing

# About versions of Python and gRPC that Google will want years from now.
warnings.filterwarnings("ignore", category=FutureWarning, module="google")

EMULATOR = "STORAGE_EMULATOR_HOST"
DEADLINE_S = 30.0
"""For one request with all its retries. The client's own default is two minutes, for each of many requests."""
TIMEOUT_S = (5.0, 60.0)
"""To connect; and between two bytes of an answer."""
_READS = 20
"""Of an object that is replaced between the question for its generation and that for its content."""
_AGAIN = f"check the network and {EMULATOR}; run the same command again when it does"
TELL_S = 2.0
"""From a request's first failure to the word that it is being repeated: a blink of the network is nobody's concern."""


_OTHER_ANSWERS = (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError)
"""What the client raises for answers of another kind, a proxy's page of HTML or JSON of another shape. RuntimeError:
nested too deep, and urllib3's for a redirect whose compressed body is cut off."""


class StorageError(UserError):
    """Object storage refuses or does not answer: that says nothing about what is there."""


def bucket_of(uri: GsUri) -> Any:
    """The google.cloud.storage.Bucket of `uri`; no request is made. Raises UserError where there are no credentials."""
    with explained(uri):
        return _client().bucket(uri.bucket)


def request() -> dict[str, Any]:
    """The keyword arguments that every call of the client gets: time-out and retries with a deadline.

    All calls here can be repeated: reads, and writes of an object that nobody else writes or under a precondition.
    """
    from google.api_core.retry import Retry
    from google.cloud.storage.retry import DEFAULT_RETRY

    # The client begins with a second: much for the small things that a training asks for after each iteration.
    # with_timeout() would keep all else of it, but there is no with_on_error().
    retry = Retry(
        predicate=DEFAULT_RETRY._predicate, initial=0.25, maximum=8.0, multiplier=2.0, timeout=DEADLINE_S,
        on_error=_Patience(),
    )  # fmt: skip
    return {"timeout": TIMEOUT_S, "retry": retry}


def read_object(uri: GsUri) -> tuple[bytes | None, int]:
    """The content of an object and the generation that it is of; None and 0 if there is none.

    Raises:
        UserError: there is no such bucket, no access, no answer.
    """
    from google.api_core.exceptions import NotFound, PreconditionFailed

    bucket = bucket_of(uri)
    for attempt in range(_READS):
        time.sleep(random.uniform(0, 0.02 * attempt))  # so that those who read and write the same object get apart
        with explained(uri):
            blob = bucket.get_blob(uri.path, **request())
            if blob is None:
                # A missing object and a missing bucket are both 404: listing tells them apart.
                next(iter(bucket.list_blobs(max_results=1, **request())), None)
                return None, 0
            generation = blob.generation  # downloading sets it anew, from a header that not every server sends
            try:
                text = blob.download_as_bytes(if_generation_match=generation, checksum="crc32c", **request())
            except (NotFound, PreconditionFailed):
                continue  # replaced between the two requests
            return text, int(generation)
    raise keeps_changing(uri)


def generation_of(uri: GsUri) -> int:
    """The generation of an object, 0 if there is none. UserError as `read_object`."""
    bucket = bucket_of(uri)
    with explained(uri):
        blob = bucket.get_blob(uri.path, **request())
        if blob is None:
            next(iter(bucket.list_blobs(max_results=1, **request())), None)  # a missing bucket is 404, too
        return int(blob.generation) if blob else 0


def server_time(uri: GsUri) -> datetime:
    """The time of the server that `uri` is on, which dates objects; this machine's clock may be wrong."""
    import requests

    bucket = bucket_of(uri)
    with explained(uri):
        # The client has no call for it. Every answer has a date, be it that the bucket may not be looked at.
        url = f"{bucket.client._connection.API_BASE_URL}/storage/v1/b/{uri.bucket}?fields=name"
        try:
            answer = bucket.client._http.get(url, timeout=TIMEOUT_S)
            return parsedate_to_datetime(answer.headers["Date"])
        except (KeyError, ValueError, TypeError):
            raise StorageError(f"{uri}: the server does not say what time it is", "use another server") from None
        except requests.exceptions.RequestException as error:
            raise StorageError(
                f"{uri}: object storage at {_server()} does not answer: {_told(error)}", _AGAIN
            ) from None


@contextmanager
def explained(uri: GsUri, missing: bool = True) -> Iterator[None]:
    """Turns what the client raises about `uri` into UserErrors.

    PreconditionFailed passes: it is an answer. So does NotFound where `missing` is False, for the caller to explain.
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
        if "ifGenerationMatch" in str(error):  # the URL is in it: the request had a precondition
            raise
        problem = f"{uri}: {_server()} refuses a precondition that was not asked for: {_told(error)}"
        raise StorageError(problem, f"check {EMULATOR}, and who answers there") from None
    except api.NotFound as error:
        if not missing:
            raise
        raise UserError(f"{uri}: {_told(error)}", f"check the name; is there a bucket {uri.bucket}?") from None
    except (api.Forbidden, api.Unauthorized) as error:
        raise StorageError(
            f"{uri}: access is denied: {_told(error)}",
            f"grant this account the role roles/storage.objectAdmin on gs://{uri.bucket}, or use another account",
        ) from None
    except auth.DefaultCredentialsError:
        raise StorageError(
            f"{uri}: there are no Google Cloud credentials here",
            "gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"
            f" (for an emulator: {EMULATOR}=http://HOST:PORT)",
        ) from None
    except auth.GoogleAuthError as error:
        raise StorageError(
            f"{uri}: the Google Cloud credentials are refused: {error}", "gcloud auth application-default login"
        ) from None
    except (api.RetryError, api.ServerError, requests.ConnectionError, requests.Timeout) as error:
        raise StorageError(
            f"{uri}: object storage at {_server()} does not answer: {_told(error)}",
            _AGAIN,
        ) from None
    except DataCorruption as error:
        raise UserError(f"{uri}: what arrived is not what was sent: {error}", "run the same command again") from None
    except api.GoogleAPICallError as error:
        raise StorageError(f"{uri}: {_told(error)}", "see the message of the service") from None
    except (requests.RequestException, zlib.error, *_OTHER_ANSWERS) as error:
        raise StorageError(
            f"{uri}: what {_server()} answers is not Cloud Storage's API: {_told(error)}",
            f"check {EMULATOR}, and who answers there",
        ) from None


class _Patience:
    """Told of each failure of a request that is repeated; says so once if that takes a while."""

    def __init__(self) -> None:
        self._first_s = -math.inf
        self._said = False

    def __call__(self, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s - self._first_s > DEADLINE_S:  # of another request: that one has given up by now
            self._first_s = now_s
        waited_s = now_s - self._first_s
        if waited_s >= TELL_S and not self._said:
            self._said = True
            left_s = DEADLINE_S - waited_s
            say(f"waiting for object storage at {_server()}, {left_s:.0f} s more at most: {_told(error)}")


def _server() -> str:
    return os.environ.get(EMULATOR, "storage.googleapis.com")


@cache
def _client() -> Any:
    from google.cloud import storage

    if emulator := os.environ.get(EMULATOR):
        try:
            require_http(emulator)
        except UserError:
            problem = f"{EMULATOR}={emulator!r} is not the URL of a server"
            raise UserError(problem, f"write it as {EMULATOR}=http://HOST:PORT") from None
    # Only listing and creating buckets would need a project, and nobody here does.
    return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT", "unset"))


def _told(error: Exception) -> str:
    """What happened, without the request's URL and without the chain of causes that urllib3 prints."""
    cause = getattr(error, "cause", None) or error
    if cause.args:  # a requests.ConnectionError holds urllib3's MaxRetryError, and that what happened
        cause = getattr(cause.args[0], "reason", None) or cause
    line = " ".join(_message(cause).split()) or type(cause).__name__
    return line if len(line) <= 200 else f"{line[:200]}…"


def _message(error: BaseException) -> str:
    """The message of an error, of an HTTP answer only what the service says in it.

    google.api_core writes "GET URL: BODY", and after a download that fails "GET URL: BODY: (what requests expected)";
    the body is JSON, a line of text or a page of HTML.
    """
    text = str(getattr(error, "message", "") or error)
    _method, found, body = text.partition("://")
    _url, separator, body = body.partition(": ")
    if not found or not separator or not isinstance(getattr(error, "code", None), int):
        return text
    body = body.split(": ('Request failed with status code'", 1)[0].strip()
    status = f"{error.code:d} {getattr(error.code, 'phrase', '')}".strip()  # type: ignore[attr-defined]
    with suppress(ValueError, RecursionError, TypeError, LookupError):
        return f"{json.loads(body)['error']['message']} ({status})"
    return status if not body or body[0] in "{[<" else f"{body} ({status})"
