"""Requests to the Kubernetes API from inside a cluster, as the pod's service account."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from components.core.console import UserError, say

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PATIENCE_S = 900.0
"""How long to go on asking a server that does not answer: the upgrade of a zonal control plane takes minutes."""
_TIMEOUT_S = (5.0, 60.0)  # to connect; between two bytes of an answer
_PAUSE_S = (0.5, 30.0)  # before the second try; at most
_PASSING = {429, 500, 502, 503, 504}


class ApiServer:
    """The API server of the cluster that this process runs in. UserError outside of one.

    directory: the service account's token and CA. patience_s: see PATIENCE_S.
    """

    def __init__(self, directory: Path = SERVICE_ACCOUNT, patience_s: float = PATIENCE_S) -> None:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        self._token, authority = directory / "token", directory / "ca.crt"
        if not host or not self._token.is_file() or not authority.is_file():
            raise UserError(
                "this is no pod with a Kubernetes service account",
                "run the step in the cluster, with automountServiceAccountToken and the service account mlgo-steps",
            )
        self._url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._patience_s = patience_s
        self._session = requests.Session()
        # The server is a neighbour: no proxy, and no other bundle of certificates, whatever the environment says.
        self._session.trust_env = False
        self._session.verify = str(authority)

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        patience_s: float | None = None,
    ) -> requests.Response:
        """The answer, whatever its status but those that pass, for which it waits; see `refused` for the others.

        Repeats a request whose answer was lost, so the caller must take "already exists" and "not found" for success.
        patience_s: another than the server's; 0 asks once.

        Raises:
            UserError: no answer within `patience_s`.
        """
        patience_s = self._patience_s if patience_s is None else patience_s
        give_up_s, pause_s, lost = time.monotonic() + patience_s, _PAUSE_S[0], 0
        while True:
            token = self._token.read_text().strip()  # read anew: kubelet replaces it before it expires
            try:
                answer = self._session.request(
                    method,
                    self._url + path,
                    json=body,
                    params=query,
                    timeout=_TIMEOUT_S,
                    headers={"Authorization": f"Bearer {token}"},
                )
                if answer.status_code == 401 and self._token.read_text().strip() != token:
                    continue  # replaced while the request was on its way
                trouble = f"{answer.status_code} {message(answer)}" if answer.status_code in _PASSING else ""
            # An answer that is no HTTP, or cut off, is a proxy's: as good as none. RuntimeError: urllib3's for a
            # redirect whose compressed body is cut off.
            except (requests.RequestException, ValueError, RuntimeError) as error:
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    problem = f"the server at {self._url} has no certificate of this cluster's authority"
                    raise UserError(problem, "check KUBERNETES_SERVICE_HOST, and who answers there") from None
                trouble = str(error).splitlines()[0][:200]
            if not trouble:
                return answer
            lost += 1
            if time.monotonic() + pause_s > give_up_s:
                raise UserError(
                    f"the Kubernetes API at {self._url} has not answered for {patience_s:.0f} s: {trouble}",
                    "what runs in the cluster goes on; run the same command again to follow it",
                )
            if lost == 2:  # one may be a connection that the server closed meanwhile
                say(f"the Kubernetes API does not answer, asking again for {patience_s:.0f} s: {trouble}")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S[1])


def refused(answer: requests.Response, what: str, remedy: str) -> UserError:
    """The error for an answer that is not the one hoped for. what: the thing asked about; remedy: for other statuses
    than those that say who is asking."""
    problem = f"the Kubernetes API refuses {what}: {answer.status_code} {message(answer)}"
    match answer.status_code:
        case 401:
            return UserError(problem, "does the pod's service account exist?")
        case 403:
            return UserError(
                problem, "run the step as the service account mlgo-steps, and apply k8s/base in that namespace"
            )
        case _:
            return UserError(problem, remedy)


def message(answer: requests.Response) -> str:
    """The words of a `Status`, which is what the API server answers errors with."""
    try:
        return str(answer.json()["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return answer.text[:200] or answer.reason


def reason(answer: requests.Response) -> str:
    """The machine's word for the same, "AlreadyExists"; "" where there is none."""
    try:
        return str(answer.json()["reason"])
    except (ValueError, KeyError, TypeError):
        return ""
