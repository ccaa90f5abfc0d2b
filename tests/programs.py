"""Programs that the test environment brings (docker/requirements/test.txt), for tests that are skipped without them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

IN_CI = os.environ.get("CI", "").lower() in ("1", "true")
"""Whether this is continuous integration, where a missing program is an error and not a skipped test."""


def program(name: str) -> str | None:
    """Return the path of a program of the running Python environment, else of $PATH, else None."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
