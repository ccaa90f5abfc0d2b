"""What all tests share: slow ones last, so that a defect that a quick test finds is told first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.buckets"]

# Not a word about speed: an example that takes 200 ms on a busy machine is no defect.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# A shell without job control has what runs in its background ignore Ctrl-C, nohup has it ignore SIGHUP, and children
# inherit that: steps that are interrupted in tests would not hear of it. What has a handler here is default there.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests, then slow ones, then those of the whole chain; the order within each stays."""
    items.sort(key=lambda item: 2 if "end_to_end" in item.path.parts else 1 if item.get_closest_marker("slow") else 0)


@pytest.fixture(scope="session")
def training_toolchain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training toolchain, made once for all (slow) tests that need one.

    $MLGO_TRAINING_TOOLCHAIN names one that is there already. Made anew otherwise, from cached objects where there are
    any, so that it is always that of the sources at hand.
    """
    if given := os.environ.get("MLGO_TRAINING_TOOLCHAIN"):
        return Path(given)
    output = tmp_path_factory.mktemp("toolchain") / "training"
    command = [sys.executable, "-m", "components.toolchain", "--mode", "training", "--output", str(output)]
    subprocess.run(command, check=True)
    return output
