"""Tests of looking up images in a registry, an HTTP server on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pipelines.cluster import registry
from pipelines.cluster.registry import check_registry
from tests.servers.http_server import JsonHandler, serving

DIGEST = f"sha256:{'1' * 64}"
LOGIN = "dTpw"


class Registry(JsonHandler):
    """A registry that gives a token to the login u:p, and has every image.

    Attributes:
        token: answer to a request for a token.
        challenge: what a refusal asks for.
        paths: paths of the manifests that were asked for with the token.
    """

    token: ClassVar[Any]
    challenge: ClassVar[str] = 'Bearer realm="http://{host}/token"'
    paths: ClassVar[list[str]]

    def do_HEAD(self) -> None:
        allowed = self.headers.get("Authorization") == "Bearer good"
        if allowed:
            self.paths.append(self.path)
        self.send_response(200 if allowed else 401)
        self.send_header("WWW-Authenticate", self.challenge.format(host=self.headers["Host"]))
        self.end_headers()

    def do_GET(self) -> None:
        allowed = self.headers.get("Authorization") == f"Basic {LOGIN}"
        self.answer(self.token if allowed else {}, 200 if allowed else 401)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Host of a registry that also stands for Docker Hub."""
    monkeypatch.setattr(Registry, "token", {"token": "good"}, raising=False)
    monkeypatch.setattr(Registry, "paths", [], raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    address = f"127.0.0.1:{server.server_port}"
    monkeypatch.setattr(registry, "_HUB", address)
    with serving(server):
        yield address


def log_in(folder: Path, key: str) -> None:
    (folder / "config.json").write_text(json.dumps({"auths": {key: {"auth": LOGIN}}}))


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("team/x", "team/x"),
        ("team/x:1", "team/x"),
        ("x", "library/x"),
        ("x:1", "library/x"),
        ("docker.io/team/x", "team/x"),
        ("docker.io/x:1", "library/x"),
        ("index.docker.io/team/x", "team/x"),
    ],
)
def test_image_without_host_is_looked_up_on_docker_hub(host: str, tmp_path: Path, image: str, name: str) -> None:
    log_in(tmp_path, "https://index.docker.io/v1/")
    assert check_registry(f"{image}@{DIGEST}", "here").status == "ok"
    assert Registry.paths == [f"/v2/{name}/manifests/{DIGEST}"]


def test_image_with_host_is_looked_up_there(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_HUB", "127.0.0.1:1")
    log_in(tmp_path, host)
    assert check_registry(f"{host}/x:1@{DIGEST}", "here").status == "ok"
    assert Registry.paths == [f"/v2/x/manifests/{DIGEST}"]


def test_docker_hub_has_its_documented_host() -> None:
    assert registry._locate(f"team/x@{DIGEST}").host == "registry-1.docker.io"
    assert registry._locate(f"localhost/x@{DIGEST}").host == "localhost"
    assert registry._locate(f"europe-docker.pkg.dev/p/r/x@{DIGEST}").name == "p/r/x"


@pytest.mark.parametrize(
    "challenge",
    [
        'Basic realm="Nexus", Bearer realm="http://{host}/token",service="x"',
        'Bearer realm="http://{host}/token",service="x", Basic realm="Nexus"',
    ],
)
def test_token_is_asked_for_among_several_challenges(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, challenge: str
) -> None:
    monkeypatch.setattr(Registry, "challenge", challenge)
    log_in(tmp_path, host)
    assert check_registry(f"{host}/x@{DIGEST}", "here").status == "ok"


def test_challenge_without_realm_is_one_clear_error(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Registry, "challenge", 'Bearer service="x"')
    found = check_registry(f"{host}/x@{DIGEST}", "here")
    assert found.status == "unknown" and "its challenge has no realm" in found.what


@pytest.mark.parametrize("token", [["good"], "good", None, {}, {"token": 1}])
def test_token_answer_without_token_is_one_clear_error(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: Any
) -> None:
    monkeypatch.setattr(Registry, "token", token)
    log_in(tmp_path, host)
    found = check_registry(f"{host}/team/x@{DIGEST}", "here")
    assert found.status == "unknown" and f"the answer of http://{host}/token has no token" in found.what


@pytest.mark.parametrize(
    ("config", "helper"),
    [
        ({"credsStore": "pass"}, "docker-credential-pass"),
        ({"credsStore": "pass", "auths": {"HOST": {}}}, "docker-credential-pass"),
        ({"credsStore": "pass", "credHelpers": {"HOST": "gcloud"}}, "docker-credential-gcloud"),
        ({"credHelpers": {"other.example": "gcloud"}}, ""),
        ({"credHelpers": ["HOST"]}, ""),
        (["HOST"], ""),
    ],
)
def test_denied_access_names_the_credential_helper(host: str, tmp_path: Path, config: Any, helper: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config).replace("HOST", host))
    found = check_registry(f"{host}/team/x@{DIGEST}", "here")
    assert found.status == "unknown" and "denies access without login" in found.what
    assert ("credential helper" in found.what, "DOCKER_CONFIG" in found.remedy) == (bool(helper), bool(helper))
    assert helper in found.what and (not helper or f'"{host}"' in found.remedy)


def test_login_in_the_configuration_is_used_where_docker_has_a_credential_helper(host: str, tmp_path: Path) -> None:
    config = {"credsStore": "pass", "auths": {host: {"auth": LOGIN}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert check_registry(f"{host}/team/x@{DIGEST}", "here").status == "ok"
