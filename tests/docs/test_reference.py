"""Tests that docs/reference.md is what `make reference` makes of the commands now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATE = """
import runpy, sys
sys.modules["tensorflow"] = sys.modules["kfp"] = None
print(runpy.run_path(sys.argv[1])["reference"](), end="")
"""


def test_reference_agrees_with_the_commands_on_any_machine(tmp_path: Path) -> None:
    """Neither the terminal, the user nor an image's environment change it; TensorFlow and kfp are not imported."""
    environment = {"COLUMNS": "40", "HOME": str(tmp_path), "USER": "someone", "MLGO_IMAGE": "mlgo-training"}
    program = [sys.executable, "-c", GENERATE, str(ROOT / "docs" / "generate_reference.py")]
    made = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert made == (ROOT / "docs" / "reference.md").read_text(), "run: make reference"
