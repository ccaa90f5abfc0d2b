"""Tests of credentials, and of servers that are not a KFP server that the client can use."""

from __future__ import annotations

import json
import re
import shutil
import ssl
import subprocess
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from components.platform.errors import UserError
from pipelines.spec import COMPILED, load_spec
from pipelines.submit import kfp_client
from pipelines.submit.kfp import KfpPipelines
from pipelines.submit.kfp_client import KfpAddress, KfpClient, read_token, token_from_environment
from pipelines.submit.options import Package, RunRequest, SubmitOptions
from tests.pipelines.submit.conftest import Mlgo
from tests.servers.http_server import JsonHandler, raw_server, serving

KINDS = {
    "v1": ("is version 1.8.5, older than 2.14", "upgrade the server"),
    "old": ("is version 2.5.0, older than 2.14", "upgrade the server"),
    "starting": ("the API server behind it does not answer", "kubectl get pods"),
    "expired": ("401 Unauthenticated; the token is missing, wrong or expired", "--existing-token-file FILE"),
    "locked": ("403 User 'x' is not authorized", "ask the server's administrator"),
    "login": ("answers with a web page instead of KFP's API", "--existing-token-file FILE"),
    "session": ("answers with a web page instead of KFP's API", "--existing-token-file FILE"),
    "redirect": ("redirects to /dex/auth, probably to log in", "--existing-token-file FILE"),
    "other": ("is not a KFP server", "ends with /pipeline"),
    "silent": ("does not answer: ", "check the address"),
    "interface": ("", ""),
    "built": ("", ""),
}
"""Servers of tests/servers/kfp_server.py, and what the error says about each."""


def create_experiment(url: str) -> None:
    spec = load_spec(COMPILED)
    KfpPipelines(KfpAddress(url)).send(RunRequest(SubmitOptions(spec), Package(spec), {}, "n"))


@pytest.mark.parametrize("kind", KINDS)
def test_only_usable_server_is_accepted(host: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, remedy = KINDS[kind]
    if not problem:
        KfpClient(KfpAddress(f"{host}/{kind}")).require_usable()
        return
    monkeypatch.setattr(kfp_client, "TIMEOUT_S", 2)
    with raw_server() as silent:
        silent.response = None
        url = f"{silent.url if kind == 'silent' else host}/{kind}"
        with pytest.raises(UserError, match=re.escape(problem)) as error:
            create_experiment(url)
    assert remedy in error.value.remedy and re.search(rf"http://127.0.0.1:\d+/{kind}\b", error.value.problem)
    assert "doctype" not in error.value.problem and "s3cret" not in error.value.problem


def test_command_reports_unusable_server_once(submit: Mlgo, host: str) -> None:
    done = submit("--host", f"{host}/login", "--param", "recipe=demo")
    assert done.returncode == 1 and done.stderr.count("error:") == 1 and "Traceback" not in done.stderr
    assert "answers with a web page" in done.stderr and "ERROR" not in done.stderr


def test_page_to_log_in_ends_watching(mlgo: Mlgo, host: str) -> None:
    done = mlgo("watch", "run-1", "--host", f"{host}/session")
    assert done.returncode == 1 and "answers with a web page" in done.stderr and "itself continues" in done.stderr


def test_namespace_on_server_without_users_is_refused(submit: Mlgo, host: str) -> None:
    done = submit("--host", host, "--param", "recipe=demo", "--namespace", "team")
    assert done.returncode == 1 and "has no namespaces of users" in done.stderr


def test_token_of_environment_is_sent(
    submit: Mlgo, host: str, monkeypatch: pytest.MonkeyPatch, last_request: Callable[[str], dict[str, Any]]
) -> None:
    options = ("--host", f"{host}/multi", "--param", "recipe=demo", "--namespace", "team", "--experiment", "e")
    monkeypatch.setenv("KFP_TOKEN", "stale")
    done = submit(*options)
    assert done.returncode == 1 and "set $KFP_TOKEN to a new token" in done.stderr and "stale" not in done.stderr
    monkeypatch.setenv("KFP_TOKEN", "good")
    done = submit(*options)
    assert done.returncode == 0, done.stderr
    assert last_request("runs")["token"] == "Bearer good"


def test_login_of_kfps_client_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file in the home directory has the cookie of a session, and the namespace of a user."""
    requests = []

    class Kfp(JsonHandler):
        def do_GET(self) -> None:
            requests.append((self.path.rpartition("/")[2], self.headers.get("Cookie"), self.headers.get("X-Key")))
            self.send_json(
                {"tag_name": "2.17.0", "multi_user": True, "experiments": [{"experiment_id": "e"}], "run_id": "r"}
            )

        do_POST = do_GET

    context = {
        "namespace": "team",
        "client_authentication_cookie": "authservice_session=abc; other=1",
        "client_authentication_header_name": "X-Key",
        "client_authentication_header_value": "7",
    }
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".config" / "kfp").mkdir(parents=True)
    file = tmp_path / ".config" / "kfp" / "context.json"
    file.write_text(json.dumps(context))
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Kfp)) as url:
        create_experiment(url)
        assert {request[1:] for request in requests} == {(context["client_authentication_cookie"], "7")}
        assert any("&namespace=team" in route for route, *_headers in requests)
        for broken in ("{", "[]", json.dumps({"namespace": 3, "client_authentication_cookie": "a\nb"})):
            file.write_text(broken)
            with pytest.raises(UserError, match="needs the namespace of one"):
                create_experiment(url)
    assert requests[-1][1:] == (None, None)


def test_token_of_pod_is_sent(mlgo: Mlgo, host: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options = ("watch", "run-0", "--host", f"{host}/multi", "--in-cluster-token")
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(tmp_path / "token"))
    done = mlgo(*options)
    assert done.returncode == 1 and f"{tmp_path / 'token'} does not exist" in done.stderr
    (tmp_path / "token").write_text("good")
    done = mlgo(*options)
    assert done.returncode == 1 and "has no run run-0" in done.stderr, "the server accepts the token"


@pytest.mark.parametrize(("content", "named"), [("", "contains no token"), ("a\nb", "is not one token")])
def test_file_without_one_token_is_refused(mlgo: Mlgo, tmp_path: Path, content: str, named: str) -> None:
    (tmp_path / "token").write_text(content)
    done = mlgo("watch", "run-0", "--host", "http://x", "--existing-token-file", tmp_path / "token")
    assert done.returncode == 1 and f"{tmp_path / 'token'} {named}" in done.stderr and "Traceback" not in done.stderr


def test_missing_token_of_pod_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read_token(tmp_path / "token", in_cluster=True)
    assert "needs a pod with a projected token" in error.value.remedy


def test_variable_with_several_lines_is_refused_without_printing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFP_TOKEN", "s3cret\nx")
    with pytest.raises(UserError, match="KFP_TOKEN is not one token") as error:
        token_from_environment()
    assert "s3cret" not in str(error.value)
    monkeypatch.setenv("KFP_TOKEN", " good\n")
    assert token_from_environment() == "good"


def test_host_without_a_scheme_is_asked_by_http(mlgo: Mlgo) -> None:
    with raw_server() as server:
        server.response = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        done = mlgo("cancel", "run-1", "--host", server.url.removeprefix("http://"))
    assert done.returncode == 1 and done.stderr.startswith(f"error: the server at {server.url} is not a KFP server")
    assert KfpAddress("h/pipeline").page("runs") == "http://h/pipeline/#/runs"


def test_token_is_not_in_the_text_of_a_server() -> None:
    assert "s3cret" not in repr(KfpAddress("http://x", token="s3cret"))


def test_no_option_takes_a_token(mlgo: Mlgo) -> None:
    for command in ("submit", "upload", "schedule", "watch", "cancel"):
        assert "--existing-token-file" in (output := mlgo(command, "--help").stdout)
        assert "--existing-token " not in output and "--token " not in output


def test_answer_that_is_no_http_is_reported(mlgo: Mlgo) -> None:
    with raw_server() as server:
        server.response = b"SSH-2.0-OpenSSH_9.2\r\n"
        done = mlgo("cancel", "run-1", "--host", server.url)
    assert done.returncode == 1 and f"KFP at {server.url} does not answer" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_certificate_of_private_authority_is_trusted_if_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 2 -subj /CN=localhost"
    subprocess.run(
        [*make.split(), "-addext", "subjectAltName=DNS:localhost"], cwd=tmp_path, check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:  # answers 501
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        problems = []
        for trusted in ("", str(tmp_path / "cert")):
            monkeypatch.setenv("SSL_CERT_FILE", trusted)
            with pytest.raises(UserError) as error:
                KfpClient(KfpAddress(f"https://localhost:{server.server_port}/x")).require_usable()
            problems.append(str(error.value))
        server.shutdown()
    assert "has no TLS certificate that is trusted here" in problems[0] and "set $SSL_CERT_FILE" in problems[0]
    assert "501" in problems[1] and "certificate" not in problems[1]
