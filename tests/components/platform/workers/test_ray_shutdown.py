"""A closed pool on Ray leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.platform.processes.reaper import REAPER
from components.platform.workers.ray_pool import RayPool

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


def scratch(_item: object) -> Path:
    return REAPER.scratch()


def test_closed_pool_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "policy").write_text("shared")
    with RayPool(slots=2, slots_per_worker=1) as pool:
        pool.share(tmp_path, ["policy"])
        directories = {
            directory for _, directory in pool.map_unordered(scratch, range(20)) if isinstance(directory, Path)
        }
        assert directories and all(any(directory.iterdir()) for directory in directories)
    assert not [directory for directory in directories if directory.exists()]
