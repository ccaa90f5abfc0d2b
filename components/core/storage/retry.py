"""Repetition of requests that may succeed later."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class GaveUp(Exception):
    """The last failure of a request that was repeated for too long is `cause`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def retry(
    request: Callable[[], T],
    may_recover: Callable[[Exception], bool],
    patience_s: float,
    on_failure: Callable[[int, Exception], None],
    first_pause_s: float = 1.0,
    longest_pause_s: float = 30.0,
) -> T:
    """Return what `request` returns; repeat it, with growing random pauses, while it fails with passing errors.

    Args:
        may_recover: whether the same request may succeed later, by the error.
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

    repeat = Retry(may_recover, first_pause_s, longest_pause_s, timeout=patience_s, on_error=record)
    try:
        return repeat(request)()
    except RetryError:
        raise GaveUp(failures[-1]) from None
