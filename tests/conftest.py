"""Configuration of all tests: their kinds, order and groups, and the training clang that many of them share."""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from components.platform.console.interrupts import TERMINATING

pytest_plugins = ["tests.support.buckets", "tests.support.shared", "tests.support.skips"]

KINDS = ("unit", "docker", "e2e", "ray", "tf", "toolchain")
"""Markers of pyproject.toml, one per test, in the order in which they run: fast tests first, so that their failures are
reported early, then the largest groups, so that parallel workers end at about the same time. One worker runs all tests
of images and containers, which takes longest."""
TESTS = Path(__file__).parent
SIGNALS = (signal.SIGINT, signal.SIGPIPE, *TERMINATING)

# No speed checks: an example that takes 200 ms on a busy machine is not a defect.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# A shell without job control makes background processes ignore SIGINT and SIGQUIT, nohup makes them ignore SIGHUP, and
# children inherit that: steps would not notice the interrupts of tests. Signals with a handler here are reset to the
# default in children.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """Variables that a test's command sets in this process do not reach later tests, nor identify their steps.

    Nor do its signal handlers: a step that has ended leaves some that end the process.
    """
    before, handlers = dict(os.environ), {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    for name in {*before, *os.environ} - {"PYTEST_CURRENT_TEST"}:
        if name not in before:
            del os.environ[name]
        elif os.environ.get(name) != before[name]:
            os.environ[name] = before[name]


def _kind(item: pytest.Item) -> str:
    """Return the kind of a test: its marker, else what its fixtures need; a clang takes minutes to build."""
    builds = {"pretrained_release", "training_toolchain"} & {*getattr(item, "fixturenames", ())}
    return next((kind for kind in KINDS if item.get_closest_marker(kind)), "toolchain" if builds else KINDS[0])


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests without a kind as unit tests, and group tests for `--dist loadgroup`.

    Groups are files, or kind and folder where every worker would otherwise build the expensive fixtures of a folder.
    Those of the whole pipeline are made once for all workers, so that their files are groups, too.
    Not in pytest_collection_modifyitems, which pytest-xdist implements first.
    """
    kind = _kind(item)
    item.add_marker(kind)
    path = item.path.relative_to(TESTS)
    group = path if kind in ("unit", "tf", "e2e") else Path(kind) / path.parent
    if item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group(group.as_posix()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort tests by kind."""
    items.sort(key=lambda item: KINDS.index(_kind(item)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number and time of the tests of each kind."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                # The report of a worker that crashed has no keywords.
                kind = next((kind for kind in KINDS if kind in report.keywords), KINDS[0])
                seconds[kind] += report.duration
                tests[kind] += report.when == "call"
    if seconds:
        terminalreporter.section("time by marker")
    for kind in sorted(seconds, key=KINDS.index):
        terminalreporter.write_line(f"{seconds[kind]:7.1f} s  {tests[kind]:5} {kind}")
