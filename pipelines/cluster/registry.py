"""Ask a container registry, by its HTTP API (OCI distribution), whether an image can be pulled."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from pipelines.cluster.findings import Finding, missing, ok, unknown

_TIMEOUT_S = 20.0
_ACCEPT = ", ".join(
    f"application/vnd.{kind}+json"
    for kind in (
        "oci.image.index.v1",
        "oci.image.manifest.v1",
        "docker.distribution.manifest.list.v2",
        "docker.distribution.manifest.v2",
    )
)
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_LOG_IN = (
    "docker login there, start docker, or try it in the cluster: kubectl run pull --image REFERENCE --restart Never"
)


def check_registry(reference: str, checked: str) -> Finding:
    """Ask for the manifest of HOST/NAME@sha256:DIGEST, with the credentials of `docker login` if they are in a file.

    Args:
        checked: with whose credentials, for the message.
    """
    import urllib3

    host, _slash, rest = reference.partition("/")
    name, _at, digest = rest.partition("@")
    name = re.sub(r":[^/]*$", "", name)
    scheme = "http" if re.match(r"(localhost|127\.0\.0\.1)(:|$)", host) else "https"  # as docker does
    url = f"{scheme}://{host}/v2/{name}/manifests/{digest}"
    login = _login(host)
    try:
        with urllib3.PoolManager(timeout=_TIMEOUT_S, retries=False) as pool:
            answer = pool.request("HEAD", url, headers={"Accept": _ACCEPT})
            if answer.status == 401:
                authorization = _authorization(pool, answer.headers.get("WWW-Authenticate", ""), login)
                answer = pool.request("HEAD", url, headers={"Accept": _ACCEPT, **authorization})
    except (urllib3.exceptions.HTTPError, ValueError, KeyError, TypeError) as error:
        return unknown(f"{reference}: the registry {host} does not answer as one: {error}", "check the network")
    if answer.status == 200:
        return ok(f"{reference} can be pulled ({checked})")
    if answer.status == 404:
        remedy = "push it again, and give the cluster's nodes the right to pull from that registry"
        return missing(f"{reference} is not in the registry", remedy)
    if answer.status in (401, 403):
        return unknown(
            f"{reference}: the registry denies access {'to this login' if login else 'without login'}", _LOG_IN
        )
    return unknown(f"{reference}: the registry answers {answer.status}", _LOG_IN)


def _authorization(pool: Any, challenge: str, login: Mapping[str, str]) -> Mapping[str, str]:
    """Return the header that answers a challenge: the login itself, or the token that it gets, perhaps anonymously."""
    if not challenge.lower().startswith("bearer "):
        return login
    parameters = dict(_PARAMETER.findall(challenge))
    realm = parameters.pop("realm")
    answer = pool.request("GET", f"{realm}?{urlencode(parameters)}", headers=dict(login))
    if answer.status != 200:
        return {}
    document = json.loads(answer.data)
    return {"Authorization": f"Bearer {document.get('token') or document['access_token']}"}


def _login(host: str) -> Mapping[str, str]:
    """Return the header with the login that docker's configuration has for a registry; empty if it has none."""
    folder = Path(os.environ.get("DOCKER_CONFIG", Path.home() / ".docker"))
    with suppress(OSError, ValueError, KeyError, TypeError):
        login = json.loads((folder / "config.json").read_text())["auths"][host]["auth"]
        base64.b64decode(login, validate=True)
        return {"Authorization": f"Basic {login}"} if login else {}
    return {}
