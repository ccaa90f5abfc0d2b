"""A request to a service that answers in JSON, and one clear error for each way in which there is no answer."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from components.platform.errors import UserError
from components.platform.storage.downloads.retry import PassingFailure

TIMEOUT_S = (5.0, 20.0)
"""To connect; and between two bytes of a response."""
_TOKEN = re.compile(r"[\x21-\x7e]*")


@dataclass(frozen=True)
class Answer:
    """A response.

    Attributes:
        status: HTTP's.
        document: the body's JSON, {} for an empty body, None for anything else.
        text: the body.
    """

    status: int
    document: Any
    text: str

    def message(self, limit: int = 200) -> str:
        """Return the `message` of an error, or the body, in one line."""
        said = self.document if isinstance(self.document, dict) else {"message": self.text}
        return " ".join(str(said.get("message", "")).split())[:limit]


def read_token(variable: str) -> str:
    """Return the token in an environment variable, "" for none. UserError, without it, if no header may have it."""
    token = os.environ.get(variable, "").strip()  # a Secret made from a file ends in a newline
    if not _TOKEN.fullmatch(token):
        raise UserError(f"{variable} is not one token", "set it to the token, without line breaks")
    return token


def request_json(
    method: str, url: str, service: str, log_in: Callable[[Any], Any], timeout_s: Any = TIMEOUT_S, **content: Any
) -> Answer:
    """Send a request once, and return the answer, whatever its status.

    Redirects are not followed: a page to log in would answer with status 200.

    Args:
        service: subject of errors. They name neither the URL nor what is sent, which may have secrets.
        log_in: adds credentials to the request that it gets, and returns it; ~/.netrc would replace a header.
        content: what requests.request takes: json, params, data, headers.

    Raises:
        PassingFailure: no connection, or no answer in time.
        UserError: the server's certificate is not trusted, the URL is none, or the answer breaks off.
    """
    import requests

    try:
        response = requests.request(method, url, auth=log_in, timeout=timeout_s, allow_redirects=False, **content)
    except requests.exceptions.SSLError:
        remedy = "set REQUESTS_CA_BUNDLE to a file with its authority"
        raise UserError(f"the certificate of {service} is not trusted", remedy) from None
    except (requests.ConnectionError, requests.Timeout) as error:
        problem = f"{service} does not answer ({type(error).__name__})"
        raise PassingFailure(problem, "check its address and the network") from None
    except requests.RequestException as error:  # its text may have the URL in it
        raise UserError(f"{service} cannot be asked ({type(error).__name__})", "check its address") from None
    try:
        document = response.json() if response.content else {}
    except (ValueError, RecursionError):
        document = None
    return Answer(response.status_code, document, response.text)
