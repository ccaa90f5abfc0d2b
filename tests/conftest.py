"""Configuration of all tests: slow tests run last, so that failures of fast tests are reported first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.buckets"]

# No speed checks: an example that takes 200 ms on a busy machine is not a defect.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# A shell without job control makes background processes ignore Ctrl-C, nohup makes them ignore SIGHUP, and children
# inherit that: steps would not notice the interrupts of tests. Signals with a handler here are reset to the default
# in children.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run fast tests first, then slow ones, then end-to-end tests; the order within each group stays."""
    items.sort(key=lambda item: 2 if "end_to_end" in item.path.parts else 1 if item.get_closest_marker("slow") else 0)


@pytest.fixture(scope="session")
def training_toolchain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training toolchain, built once for all (slow) tests that need one.

    $MLGO_TRAINING_TOOLCHAIN names an existing one. Otherwise it is built, from cached objects if there are any, so that
    it always matches the present sources.
    """
    if given := os.environ.get("MLGO_TRAINING_TOOLCHAIN"):
        return Path(given)
    output = tmp_path_factory.mktemp("toolchain") / "training"
    command = [sys.executable, "-m", "components.toolchain", "--mode", "training", "--output", str(output)]
    subprocess.run(command, check=True)
    return output
