"""A finished run of the whole chain, made once for all tests that look at one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.chain import mlgo_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run directory of the whole chain, and what the run printed."""
    run = tmp_path_factory.mktemp("chain") / "run"
    return run, mlgo_run(run)
