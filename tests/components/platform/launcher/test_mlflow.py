"""What a step does where MLflow cannot be told. With a server: tests/components/ppo/test_tracking.py."""

from __future__ import annotations

import http.server
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from components.platform.launcher import mlflow
from components.platform.launcher.mlflow import Tracker
from tests.servers.http_server import serving


class Refusing(http.server.BaseHTTPRequestHandler):
    """Answers each request with `answer`; notes its login."""

    answer: ClassVar[tuple[int, bytes]] = (401, b"")
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization", ""))
        status, content = self.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Refusing]]:
    monkeypatch.setattr(Refusing, "seen", [])
    monkeypatch.setattr(mlflow, "_LAST_PAUSE_S", 0.01)
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        yield Refusing


def use(directory: Path, capsys: pytest.CaptureFixture[str], wait_s: float = 20.0) -> str:
    """Send something of each kind; return what is printed."""
    (directory / "report.json").write_text("{}")
    tracker = Tracker("t", {})
    tracker.log([("reward_mean", 0.5, step) for step in range(50)], {"seed": 3})
    tracker.end("FINISHED", wait_s, {"a": "b"}, {"report.json": directory / "report.json"})
    said = capsys.readouterr()
    return said.out + said.err


def test_nothing_without_the_variable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert use(tmp_path, capsys) == ""


@pytest.mark.parametrize("uri", ["sqlite:///runs.db", "databricks", "/tmp/mlruns"])
def test_other_stores_are_told_once(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    said = use(tmp_path, capsys)
    assert said.count("MLFLOW_TRACKING_URI is not the http:// or https:// URL of a server") == 1


def test_server_that_is_away_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mlflow, "_LAST_PAUSE_S", 0.01)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")
    said = use(tmp_path, capsys)
    assert said.count("warning: MLflow was not told: http://127.0.0.1:9 does not answer") == 1
    assert said.count("the run of t at http://127.0.0.1:9 is not complete") == 1 and "secret" not in said


def test_server_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{listening.getsockname()[1]}")
        started_s = time.monotonic()
        said = use(tmp_path, capsys, wait_s=0.5)
        assert time.monotonic() - started_s < 5 and "is not complete" in said


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (200, b"", "KeyError"),
        (200, b"<html>log in</html>", "does not answer as MLflow does"),
        (200, b'{"experiment": null}', "TypeError"),
        (302, b"", "status 302"),
        (
            403,
            b"Invalid Host header",
            "Invalid Host header; set MLFLOW_TRACKING_TOKEN, or the server's --allowed-hosts",
        ),
        (404, b"not here", "status 404, not here"),
        (503, b"busy", "status 503, busy; see the server's log"),
    ],
)
def test_wrong_answers_are_named(
    status: int, content: bytes, message: str, server: type[Refusing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(server, "answer", (status, content))
    said = use(tmp_path, capsys)
    assert message in said and said.count("warning: MLflow was not told") == 1, said


@pytest.mark.parametrize("uri", ["http://a..b", "http://127.0.0.1:99999"])
def test_impossible_address_ends_no_step(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mlflow, "_LAST_PAUSE_S", 0.01)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert "MLflow" in use(tmp_path, capsys)


@pytest.mark.parametrize(
    ("variables", "login"),
    [
        ({"MLFLOW_TRACKING_TOKEN": "t0ken\n"}, "Bearer t0ken"),
        ({"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "p€ss"}, "Basic bWU6cOKCrHNz"),
    ],
)
def test_login_is_sent_in_place_of_netrc(
    variables: dict[str, str], login: str, server: type[Refusing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password other\n")
    for name, value in {"NETRC": str(tmp_path / "netrc"), **variables}.items():
        monkeypatch.setenv(name, value)
    said = use(tmp_path, capsys)
    assert set(server.seen) == {login}
    assert "refuses /experiments/get-by-name: status 401" in said and "p€ss" not in said


@pytest.mark.parametrize("token", ["se\ncret", "se€cret"])
def test_broken_token_stays_secret(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", token)
    said = use(tmp_path, capsys)
    assert "MLflow was not told" in said and "cret" not in said
