"""Tests of repeated requests, with short pauses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from components.platform.storage.downloads.retry import GaveUp, retry


class Passing(Exception):
    """An error after which the same request may succeed."""


def fails(times: int, error: Exception) -> Callable[[], str]:
    """Return a request that fails `times` times and then succeeds."""
    errors = [error] * times

    def request() -> str:
        if errors:
            raise errors.pop()
        return "answer"

    return request


def ask(request: Callable[[], str], patience_s: float, failures: list[tuple[int, str]]) -> str:
    return retry(
        request,
        lambda error: isinstance(error, Passing),
        patience_s,
        lambda count, error: failures.append((count, str(error))),
        first_pause_s=0.001,
        longest_pause_s=0.01,
    )


def test_passing_errors_are_repeated_and_counted() -> None:
    failures: list[tuple[int, str]] = []
    assert ask(fails(3, Passing("busy")), 10, failures) == "answer"
    assert failures == [(1, "busy"), (2, "busy"), (3, "busy")]


def test_other_errors_are_raised_at_once() -> None:
    failures: list[tuple[int, str]] = []
    with pytest.raises(KeyError):
        ask(fails(1, KeyError("refused")), 10, failures)
    assert failures == []


@pytest.mark.parametrize("patience_s", [0, 0.05])
def test_gives_up_with_the_last_error(patience_s: float) -> None:
    failures: list[tuple[int, str]] = []
    with pytest.raises(GaveUp) as raised:
        ask(fails(10_000, Passing("busy")), patience_s, failures)
    assert isinstance(raised.value.cause, Passing) and failures[-1][0] == len(failures) >= 1
    assert patience_s or len(failures) == 1, "without patience a request is tried once"
