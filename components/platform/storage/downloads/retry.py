"""Repetition of requests that may succeed later."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import TypeVar

from components.platform.console import say
from components.platform.errors import UserError

T = TypeVar("T")
Say = Callable[[str], None]
PAUSES_S = (2.0, 8.0)
"""Pauses of `retry_briefly`. A server of KFP 2.17 does not repeat a step that fails."""


class PassingFailure(UserError):
    """A failure that the same request may not meet later."""


def may_recover(status: int) -> bool:
    """Return whether a request that failed with this HTTP status may succeed later."""
    return status in (408, 429) or status >= 500


def retry_briefly(request: Callable[[], T], progress: Say = say) -> T:
    """Return what `request` returns; repeat it after each of PAUSES_S while it raises PassingFailure.

    For requests of any length, such as downloads, whose time says nothing about how often they were tried.
    """
    for pause_s in PAUSES_S:
        try:
            return request()
        except PassingFailure as error:
            progress(f"{error.problem}; trying again in {pause_s:.0f} s")
            time.sleep(pause_s)
    return request()


class GaveUp(Exception):
    """The last failure of a request that was repeated for too long is `cause`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def retry(
    request: Callable[[], T],
    is_transient: Callable[[Exception], bool],
    patience_s: float,
    on_failure: Callable[[int, Exception], None],
    first_pause_s: float = 1.0,
    longest_pause_s: float = 30.0,
) -> T:
    """Return what `request` returns; repeat it, with growing random pauses, while it fails with passing errors.

    Args:
        is_transient: whether the same request may succeed later, by the error.
        patience_s: how long to repeat it; 0 tries once.
        on_failure: called with the number of passing failures so far and the last one, for messages.

    Raises:
        GaveUp: it failed with passing errors for `patience_s`.
        Exception: any other error of `request`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about Python versions that Google will require years from now
        from google.api_core.exceptions import RetryError
        from google.api_core.retry import Retry

    failures: list[Exception] = []

    def record(error: Exception) -> None:
        failures.append(error)
        on_failure(len(failures), error)

    repeat = Retry(is_transient, first_pause_s, longest_pause_s, timeout=patience_s, on_error=record)
    try:
        return repeat(request)()
    except RetryError:
        raise GaveUp(failures[-1]) from None
