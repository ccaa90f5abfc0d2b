"""In continuous integration a skipped test is a failure, unless allowed_skips.txt allows it with a reason.

A test that is skipped because a program is missing tests nothing, and nobody notices.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest

ALLOWED = Path(__file__).with_name("allowed_skips.txt")
CI = "CI"
"""Environment variable that continuous integration sets to 1 or true."""


@cache
def allowed_skips() -> dict[str, str]:
    """Return the reasons of the tests that may be skipped, by test id as on pytest's command line.

    Raises:
        pytest.UsageError: a line has no id or no reason.
    """
    allowed = {}
    for line in ALLOWED.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        test, _, reason = line.partition("  ")
        if not test or not reason.strip():
            raise pytest.UsageError(f"{ALLOWED}: no test id, two spaces and a reason: {line!r}")
        allowed[test] = reason.strip()
    return allowed


def selects(entry: str, test: str) -> bool:
    """Return whether an id of a file, class, test or parameter set selects a test."""
    # pytest-xdist appends @GROUP to ids.
    return test == entry or test.startswith((f"{entry}::", f"{entry}[", f"{entry}@"))


def _fail_if_not_allowed(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail") or os.environ.get(CI, "").lower() not in ("1", "true"):
        return
    if any(selects(entry, report.nodeid) for entry in allowed_skips()):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = (
        f"{report.nodeid}: {reason}\n"
        f"In continuous integration no test may be skipped. Install what it needs (docker/requirements/apt-test.txt, "
        f"pyproject.toml), or add its id and the reason to tests/support/allowed_skips.txt."
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that a mark, a fixture or its own code skips."""
    report = yield
    _fail_if_not_allowed(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a file that is skipped as a whole, as by pytest.importorskip."""
    report = yield
    _fail_if_not_allowed(report)
    return report
