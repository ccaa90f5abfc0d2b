"""Tells a webhook. Its URL is a secret: it comes from the environment and never goes into a log or an error."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests

from components.console import UserError

NOTIFY_VARIABLE = "MLGO_NOTIFY_URL"
"""Environment variable with the URL; on a cluster a Kubernetes Secret fills it."""
_TIMEOUT_S = 20.0


def notify(outcome: Mapping[str, Any]) -> None:
    """POST `outcome`, as JSON, to the URL in $MLGO_NOTIFY_URL; do nothing if it is not set.

    Raises:
        UserError: not a URL, no answer, or a status other than 2xx. It names the URL's host and nothing more of it.
    """
    url = os.environ.get(NOTIFY_VARIABLE, "").strip()  # a Secret made from a file ends in a newline
    if not url:
        return
    host = _host(url)
    if host is None:
        raise UserError(f"{NOTIFY_VARIABLE} is not an http:// or https:// URL", "write the webhook's URL to the secret")
    try:
        # No redirect: it would be followed by a GET, and to any host.
        answer = requests.post(url, json=dict(outcome), timeout=_TIMEOUT_S, allow_redirects=False)
        failure = "" if answer.ok and not answer.is_redirect else f"status {answer.status_code}"
    except requests.Timeout:
        failure = f"no answer within {_TIMEOUT_S:.0f} s"
    except requests.exceptions.SSLError:
        failure = "its certificate is not trusted"
    except requests.ConnectionError:
        failure = "no connection"
    # Their words contain the URL. RuntimeError: urllib3's for a redirect whose compressed body is cut off.
    except (requests.RequestException, ValueError, RuntimeError):
        failure = "not an address that can be asked"
    if failure:
        problem = f"the webhook at {host} did not take the notice: {failure}"
        raise UserError(problem, f"check the URL in the secret that sets {NOTIFY_VARIABLE}")


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.scheme in ("http", "https") else None
    except ValueError:
        return None
