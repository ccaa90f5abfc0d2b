"""The webhook: it gets the outcome, and nobody else learns more of its URL than the host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import requests

from components.console import UserError
from components.launcher.notify import NOTIFY_VARIABLE, notify

SECRET = "T024-s3cret"


@contextmanager
def webhook(status: int, told: list[bytes]) -> Iterator[str]:
    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Location", f"http://127.0.0.1:1/{SECRET}")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://user:{SECRET}@127.0.0.1:{server.server_port}/services/{SECRET}?key={SECRET}"
    server.shutdown()
    server.server_close()


def test_the_webhook_gets_the_outcome(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    told: list[bytes] = []
    with webhook(204, told) as url:
        monkeypatch.setenv(NOTIFY_VARIABLE, f"{url}\n")
        notify({"state": "FAILED"})
    assert [json.loads(body) for body in told] == [{"state": "FAILED"}]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("url", [None, "", "\n"])
def test_without_a_url_nobody_is_told(url: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NOTIFY_VARIABLE, raising=False)
    if url is not None:
        monkeypatch.setenv(NOTIFY_VARIABLE, url)
    monkeypatch.setattr(requests, "post", lambda *_arguments, **_options: pytest.fail("somebody was told"))
    notify({"state": "SUCCEEDED"})


@pytest.mark.parametrize("status", [302, 307, 404, 500])
def test_of_a_webhook_that_refuses_only_the_host_is_named(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with webhook(status, []) as url:
        monkeypatch.setenv(NOTIFY_VARIABLE, url)
        _refused(f"the webhook at 127.0.0.1 did not take the notice: status {status}")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        (f"http://127.0.0.1:1/{SECRET}", "the webhook at 127.0.0.1 did not take the notice: no connection"),
        (f"https://hooks.invalid/{SECRET}", "the webhook at hooks.invalid did not take the notice: no connection"),
        (f"hooks.example.com/{SECRET}", "is not an http:// or https:// URL"),
        (f"ftp://hooks.example.com/{SECRET}", "is not an http:// or https:// URL"),
        (f"http:///{SECRET}", "is not an http:// or https:// URL"),
        (f"http://[::1/{SECRET}", "is not an http:// or https:// URL"),
        (f"http://127.0.0.1:port/{SECRET}", "the webhook at 127.0.0.1 did not take the notice: not an address"),
        (f"http://.127.0.0.1/{SECRET}", "the webhook at .127.0.0.1 did not take the notice: "),
    ],
)
def test_of_a_url_that_cannot_be_asked_only_the_host_is_named(
    url: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NOTIFY_VARIABLE, url)
    _refused(named)


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        (requests.exceptions.SSLError, "its certificate is not trusted"),
        (requests.exceptions.ReadTimeout, "no answer within 20 s"),
        (requests.exceptions.TooManyRedirects, "not an address that can be asked"),
        (ValueError, "not an address that can be asked"),
    ],
)
def test_what_the_client_says_is_not_repeated(
    raised: Callable[[str], Exception], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def post(url: str, **_options: object) -> None:
        raise raised(f"Max retries exceeded with url: {url}")

    monkeypatch.setattr(requests, "post", post)
    monkeypatch.setenv(NOTIFY_VARIABLE, f"https://hooks.example.com/{SECRET}")
    _refused(f"the webhook at hooks.example.com did not take the notice: {named}")


def _refused(named: str) -> None:
    with pytest.raises(UserError) as error:
        notify({"state": "FAILED"})
    assert named in str(error.value) and NOTIFY_VARIABLE in str(error.value)
    assert SECRET not in str(error.value) and SECRET not in repr(error.value)
    assert error.value.__suppress_context__ or error.value.__context__ is None, "a traceback would show the URL"
