"""What others' packages say of themselves, and nobody who uses a policy can mend, is not said."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

COMPILE = "import sys, components.core.policy; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')"


def said_when_compiling(source: Path) -> str:
    command = [sys.executable, "-c", COMPILE, str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr


def test_compiling_tf_agents_is_quiet_and_compiling_ours_is_not(tmp_path: Path) -> None:
    found = find_spec("tf_agents")
    assert found is not None and found.origin is not None
    source = Path(found.origin).parent / "utils" / "common.py"
    assert said_when_compiling(source) == ""
    ours = tmp_path / "own.py"
    ours.write_bytes(source.read_bytes())
    assert "SyntaxWarning" in said_when_compiling(ours)
