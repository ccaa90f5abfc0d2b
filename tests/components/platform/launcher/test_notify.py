"""The webhook receives the outcome, and logs and errors reveal only the host of its URL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

import pytest
import requests

from components.platform.errors import UserError
from components.platform.launcher.notify import NOTIFY_SECRET_VARIABLE, NOTIFY_VARIABLE, notify
from tests.servers.http_server import JsonHandler, serving

SECRET = "T024-s3cret"


@contextmanager
def webhook(status: int, received: list[bytes]) -> Iterator[str]:
    class Hook(JsonHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Location", f"http://127.0.0.1:1/{SECRET}")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    with serving(server):
        yield f"http://user:{SECRET}@127.0.0.1:{server.server_port}/services/{SECRET}?key={SECRET}"


def test_webhook_receives_the_outcome(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    received: list[bytes] = []
    with webhook(204, received) as url:
        monkeypatch.setenv(NOTIFY_VARIABLE, f"{url}\n")
        notify({"state": "FAILED"})
    assert [json.loads(body) for body in received] == [{"state": "FAILED"}]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("url", [None, "", "\n"])
def test_nothing_is_sent_without_a_url(url: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NOTIFY_VARIABLE, raising=False)
    if url is not None:
        monkeypatch.setenv(NOTIFY_VARIABLE, url)
    monkeypatch.setattr(requests, "post", lambda *_arguments, **_options: pytest.fail("a request was sent"))
    notify({"state": "SUCCEEDED"})


@pytest.mark.parametrize("status", [302, 307, 404, 500])
def test_error_of_a_refusing_webhook_names_only_the_host(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with webhook(status, []) as url:
        monkeypatch.setenv(NOTIFY_VARIABLE, url)
        _assert_refused(f"the webhook at 127.0.0.1 did not accept the notification: status {status}")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        (f"http://127.0.0.1:1/{SECRET}", "the webhook at 127.0.0.1 did not accept the notification: no connection"),
        (f"https://hooks.invalid/{SECRET}", "the webhook at hooks.invalid did not accept the notification: no conn"),
        (f"hooks.example.com/{SECRET}", "is not an http:// or https:// URL"),
        (f"ftp://hooks.example.com/{SECRET}", "is not an http:// or https:// URL"),
        (f"http:///{SECRET}", "is not an http:// or https:// URL"),
        (f"http://[::1/{SECRET}", "is not an http:// or https:// URL"),
        (f"http://127.0.0.1:port/{SECRET}", "is not an http:// or https:// URL"),
        (f"http://.127.0.0.1/{SECRET}", "the webhook at .127.0.0.1 did not accept the notification: "),
    ],
)
def test_error_of_an_unusable_url_names_only_the_host(url: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NOTIFY_VARIABLE, url)
    _assert_refused(named)


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        (requests.exceptions.SSLError, "its certificate is not trusted"),
        (requests.exceptions.ReadTimeout, "no answer within 20 s"),
        (requests.exceptions.TooManyRedirects, "the request failed"),
        (ValueError, "the request failed"),
    ],
)
def test_error_omits_the_http_client_message(
    raised: Callable[[str], Exception], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def post(url: str, **_options: object) -> None:
        raise raised(f"Max retries exceeded with url: {url}")

    monkeypatch.setattr(requests, "post", post)
    monkeypatch.setenv(NOTIFY_VARIABLE, f"https://hooks.example.com/{SECRET}")
    _assert_refused(f"the webhook at hooks.example.com did not accept the notification: {named}")


def _assert_refused(named: str) -> None:
    with pytest.raises(UserError) as error:
        notify({"state": "FAILED"})
    assert named in str(error.value) and NOTIFY_VARIABLE in str(error.value)
    assert SECRET not in str(error.value) and SECRET not in repr(error.value)
    assert error.value.__suppress_context__ or error.value.__context__ is None, "a traceback would show the URL"


def test_missing_secret_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NOTIFY_VARIABLE, raising=False)
    notify({"state": "SUCCEEDED"})
    monkeypatch.setenv(NOTIFY_SECRET_VARIABLE, "mlgo-notify")
    with pytest.raises(UserError, match="mlgo-notify") as error:
        notify({"state": "SUCCEEDED"})
    assert "mlgo-notify" in error.value.remedy
