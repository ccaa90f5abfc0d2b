"""Downloads a file from a web server and turns every way in which that can fail into a UserError."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from components.platform.console import say_if_slow
from components.platform.errors import UserError
from components.platform.storage.downloads.retry import PassingFailure, may_recover, retry_briefly

TIMEOUT_S = (10.0, 60.0)
"""To connect; and between two bytes of a response."""
_BLOCK_BYTES = 64 << 10


def is_http_url(url: str) -> bool:
    """Return whether `url` is an http:// or https:// URL with a host."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port or IPv6 address
        return False
    return good and not any(character.isspace() or not character.isprintable() for character in url)


def require_http(url: str) -> None:
    """Raise UserError unless `url` is an http:// or https:// URL with a host."""
    if not is_http_url(url):
        raise UserError(f"{url!r} is not the URL of a file on a web server", "write it as https://HOST/PATH")


def download(url: str, path: Path) -> None:
    """Write the response body of `url` to the file `path`, byte for byte. The caller removes a partial file.

    A connection that breaks and an overloaded server are tried three times.

    Raises:
        UserError: not an http:// or https:// URL; no response, an error status, a response that is truncated or not
            HTTP, endless redirects. Disk errors stay OSErrors.
    """
    require_http(url)
    retry_briefly(lambda: _download_once(url, path))


def _download_once(url: str, path: Path) -> None:
    import requests
    import urllib3

    remedy = "check the URL and the network"
    waiting = f"waiting for {urlsplit(url).netloc} to send {url} (at most {TIMEOUT_S[1]:.0f} s without a byte)"
    with open(path, "wb") as file:
        try:
            with (
                say_if_slow(waiting) as heard,
                # identity, and raw below: the archive must not be decompressed in transit, its checksum is of the file.
                requests.get(url, stream=True, timeout=TIMEOUT_S, headers={"Accept-Encoding": "identity"}) as response,
            ):
                response.raise_for_status()
                for block in response.raw.stream(_BLOCK_BYTES, decode_content=False):
                    heard()
                    file.write(block)
        except requests.TooManyRedirects:
            raise UserError(f"cannot download {url}: the server redirects endlessly", remedy) from None
        except requests.exceptions.SSLError as error:  # a ConnectionError that stays
            raise UserError(f"cannot download {url}: {_cause(error)}", remedy) from None
        except (requests.HTTPError, requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError) as error:
            error_response = error.response if isinstance(error, requests.HTTPError) else None
            status = error_response.status_code if error_response is not None else None
            kind = PassingFailure if status is None or may_recover(status) else UserError
            raise kind(f"cannot download {url}: {_cause(error)}", remedy) from None
        # RuntimeError: urllib3's for a redirect whose compressed body is truncated.
        except (requests.RequestException, ValueError, RuntimeError) as error:
            raise UserError(f"cannot download {url}: {_cause(error)}", remedy) from None


def _cause(error: BaseException) -> str:
    """Return what happened, without urllib3's chain of causes and object addresses."""
    reason = getattr(error.args[0], "reason", None) if error.args else None
    text = str(reason or error).splitlines()
    line = text[0].rpartition(": ")[2] if reason and text else text[0] if text else type(error).__name__
    return line if len(line) <= 200 else f"{line[:200]}…"
