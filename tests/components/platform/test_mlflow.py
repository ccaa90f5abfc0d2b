"""What a step does where MLflow cannot be told. With a server: tests/components/ppo/test_tracking.py."""

from __future__ import annotations

import http.server
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from components.platform.mlflow import Tracker
from tests.servers.http_server import serving


class Refusing(http.server.BaseHTTPRequestHandler):
    """Answers as a gateway that wants a login; notes the headers of each request."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization", ""))
        self.send_response(401)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.setattr(Refusing, "seen", [])
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        yield Refusing.seen


def use(tracker: Tracker, directory: Path) -> bool:
    (directory / "report.json").write_text("{}")
    known = tracker.log([("reward_mean", 0.5, 1)], {"seed": 3})
    tracker.end("FINISHED", {"a": "b"}, {"report.json": directory / "report.json"})
    return known


def test_nothing_without_the_variable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not use(Tracker("t", {}), tmp_path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("uri", ["sqlite:///runs.db", "databricks", "/tmp/mlruns"])
def test_other_stores_are_told_once(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert not use(Tracker("t", {}), tmp_path)
    said = capsys.readouterr()
    assert (said.out + said.err).count("MLFLOW_TRACKING_URI is not the http:// or https:// URL of a server") == 1


def test_server_that_does_not_answer_is_not_asked_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:9")
    tracker = Tracker("t", {})
    assert [tracker.log([("reward_mean", 0.5, step)]) for step in range(50)] == [False] * 50
    said = capsys.readouterr()
    assert (said.out + said.err).count("warning: MLflow was not told: http://127.0.0.1:9 does not answer") == 1


@pytest.mark.parametrize("login", ["token", "user"])
def test_login_is_sent_and_its_refusal_named(
    login: str, refusing: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if login == "token":
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken\n")
    else:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "pass")
    assert not use(Tracker("t", {}), tmp_path)
    assert set(refusing) == {"Bearer t0ken" if login == "token" else "Basic bWU6cGFzcw=="}
    said = capsys.readouterr()
    assert "refuses /experiments/get-by-name: status 401; check MLFLOW_TRACKING_TOKEN" in said.out + said.err


def test_broken_token_stays_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "se\ncret")
    assert not use(Tracker("t", {}), tmp_path)
    said = capsys.readouterr()
    assert "MLFLOW_TRACKING_TOKEN is not one token" in said.out + said.err and "cret" not in said.out + said.err
