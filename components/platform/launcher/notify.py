"""Notifies a webhook. Its URL is a secret: it comes from the environment and never goes into a log or an error."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests

from components.platform.errors import UserError
from components.platform.storage.downloads.http_download import is_http_url

NOTIFY_VARIABLE = "MLGO_NOTIFY_URL"
"""Environment variable with the URL; on a cluster a Kubernetes Secret fills it."""
OUTCOME_VARIABLE = "MLGO_PIPELINE_OUTCOME"
"""Environment variable by which the runners of this machine tell the exit handler how the pipeline ended, in JSON."""
PAGES_VARIABLE = "MLGO_RUN_PAGES"
"""Environment variable with the URL of the server's pages of runs, to which the ID of a run is appended."""
NOTIFY_SECRET_VARIABLE = "MLGO_NOTIFY_SECRET"
"""Environment variable with the name of the Secret that fills NOTIFY_VARIABLE, if it exists."""
_TIMEOUT_S = 20.0


def notify(outcome: Mapping[str, Any]) -> None:
    """POST `outcome`, as JSON, to the URL in $MLGO_NOTIFY_URL; do nothing if none was asked for.

    Raises:
        UserError: a Secret should have the URL and does not, not a URL, no response, or a status other than 2xx. It
            names only the URL's host.
    """
    url = os.environ.get(NOTIFY_VARIABLE, "").strip()  # a Secret made from a file ends in a newline
    if not url:
        if secret := os.environ.get(NOTIFY_SECRET_VARIABLE):
            raise UserError(
                f"nobody is notified: in the namespace of the steps there is no Secret {secret} with the key url",
                f"kubectl create secret generic {secret} --namespace NAMESPACE --from-file url=FILE",
            )
        return
    if not is_http_url(url):
        raise UserError(f"{NOTIFY_VARIABLE} is not an http:// or https:// URL", "write the webhook's URL to the secret")
    host = urlsplit(url).hostname
    try:
        # Redirects are not followed: that would be a GET, and could go to any host.
        response = requests.post(url, json=dict(outcome), timeout=_TIMEOUT_S, allow_redirects=False)
        failure = "" if response.ok and not response.is_redirect else f"status {response.status_code}"
    except requests.Timeout:
        failure = f"no answer within {_TIMEOUT_S:.0f} s"
    except requests.exceptions.SSLError:
        failure = "its certificate is not trusted"
    except requests.ConnectionError:
        failure = "no connection"
    # These messages contain the URL. RuntimeError: urllib3's for a redirect whose compressed body is truncated.
    except (requests.RequestException, ValueError, RuntimeError):
        failure = "the request failed"
    if failure:
        problem = f"the webhook at {host} did not accept the notification: {failure}"
        raise UserError(problem, f"check the URL in the secret that sets {NOTIFY_VARIABLE}")
