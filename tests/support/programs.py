"""Programs that the test environment brings (docker/requirements/test.txt), for tests that are skipped without them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def program(name: str) -> str | None:
    """Return the path of a program of the running Python environment, else of $PATH, else None."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
