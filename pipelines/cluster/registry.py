"""Ask a container registry, by its HTTP API (OCI distribution), whether an image can be pulled."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
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
_HUB = "registry-1.docker.io"
_HUB_NAMES = ("docker.io", "index.docker.io")
_HUB_LOGIN = "https://index.docker.io/v1/"
"""Key of the login to Docker Hub in docker's configuration; other registries have their host."""
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_BEARER = re.compile(r'\bbearer +((?:\w+="[^"]*"[ ,]*)*)', re.IGNORECASE)
"""The parameters of a Bearer challenge, which may stand next to others in one header (RFC 9110, section 11.6.1)."""
_LOG_IN = (
    "docker login there, start docker, or try it in the cluster: kubectl run pull --image REFERENCE --restart Never"
)


@dataclass(frozen=True)
class _Location:
    """Where an image is.

    Attributes:
        host: host of the registry's API, with its port.
        name: name of the image in the registry.
        digest: sha256:DIGEST.
        login: key of the registry in docker's configuration.
    """

    host: str
    name: str
    digest: str
    login: str


def check_registry(reference: str, checked: str) -> Finding:
    """Ask for the manifest of an image, with the credentials of `docker login` if they are in docker's configuration.

    Args:
        reference: [HOST/]NAME[:TAG]@sha256:DIGEST; without HOST, the image is on Docker Hub.
        checked: with whose credentials, for the message.
    """
    import urllib3

    image = _locate(reference)
    scheme = "http" if re.match(r"(localhost|127\.0\.0\.1)(:|$)", image.host) else "https"  # as docker does
    url = f"{scheme}://{image.host}/v2/{image.name}/manifests/{image.digest}"
    config = _docker_config()
    login = _login(config, image.login)
    try:
        with urllib3.PoolManager(timeout=_TIMEOUT_S, retries=False) as pool:
            answer = pool.request("HEAD", url, headers={"Accept": _ACCEPT})
            if answer.status == 401:
                authorization = _authorization(pool, answer.headers.get("WWW-Authenticate", ""), login)
                answer = pool.request("HEAD", url, headers={"Accept": _ACCEPT, **authorization})
    except (urllib3.exceptions.HTTPError, ValueError, KeyError) as error:
        return unknown(f"{reference}: the registry {image.host} does not answer as one: {error}", "check the network")
    if answer.status == 200:
        return ok(f"{reference} can be pulled ({checked})")
    if answer.status == 404:
        remedy = "push it again, and give the cluster's nodes the right to pull from that registry"
        return missing(f"{reference} is not in the registry", remedy)
    if answer.status in (401, 403) and not login and (helper := _credential_helper(config, image.login)):
        return unknown(
            f"{reference}: the registry denies access without login, and docker's credential helper {helper}, which "
            "may have a login, is not used here",
            "start docker, which uses the helper; or write the login into the config.json of another directory, as "
            f'{{"auths": {{"{image.login}": {{"auth": BASE64_OF_USER:PASSWORD}}}}}}, and set DOCKER_CONFIG to that '
            "directory",
        )
    if answer.status in (401, 403):
        return unknown(
            f"{reference}: the registry denies access {'to this login' if login else 'without login'}", _LOG_IN
        )
    return unknown(f"{reference}: the registry answers {answer.status}", _LOG_IN)


def _locate(reference: str) -> _Location:
    """Return where an image is; as docker does, take the first part of its name as a host only if it looks like one."""
    path, _at, digest = reference.partition("@")
    path = re.sub(r":[^/]*$", "", path)
    host, _slash, name = path.partition("/")
    if not name or (host != "localhost" and not re.search(r"[.:]", host)):
        host, name = _HUB_NAMES[0], path
    if host in _HUB_NAMES:
        return _Location(_HUB, name if "/" in name else f"library/{name}", digest, _HUB_LOGIN)
    return _Location(host, name, digest, host)


def _authorization(pool: Any, challenge: str, login: Mapping[str, str]) -> Mapping[str, str]:
    """Return the header that answers a challenge: the login itself, or the token that it gets, perhaps anonymously.

    Raises:
        ValueError, KeyError: the challenge is incomplete, or its answer has no token.
    """
    bearer = _BEARER.search(challenge)
    if bearer is None:
        return login
    parameters = dict(_PARAMETER.findall(bearer[1]))
    realm = parameters.pop("realm", None)
    if realm is None:
        raise ValueError("its challenge has no realm")
    answer = pool.request("GET", f"{realm}?{urlencode(parameters)}", headers=dict(login))
    if answer.status != 200:
        return {}
    document = json.loads(answer.data)
    token = (document.get("token") or document.get("access_token")) if isinstance(document, dict) else None
    if not isinstance(token, str):
        raise ValueError(f"the answer of {realm} has no token")
    return {"Authorization": f"Bearer {token}"}


def _docker_config() -> Mapping[str, Any]:
    """Return docker's configuration; empty if there is none."""
    folder = Path(os.environ.get("DOCKER_CONFIG", Path.home() / ".docker"))
    with suppress(OSError, ValueError):
        config = json.loads((folder / "config.json").read_text())
        return config if isinstance(config, dict) else {}
    return {}


def _login(config: Mapping[str, Any], key: str) -> Mapping[str, str]:
    """Return the header with the login that docker's configuration has for a registry; empty if it has none."""
    with suppress(ValueError, KeyError, TypeError):
        login = config["auths"][key]["auth"]
        base64.b64decode(login, validate=True)
        return {"Authorization": f"Basic {login}"} if login else {}
    return {}


def _credential_helper(config: Mapping[str, Any], key: str) -> str:
    """Return the program that docker asks for the login to a registry; empty if it asks none."""
    helpers = config.get("credHelpers")
    own = helpers.get(key) if isinstance(helpers, dict) else None
    helper = own or config.get("credsStore")
    return f"docker-credential-{helper}" if helper else ""
