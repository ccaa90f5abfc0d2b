"""Warnings of dependencies that users of a policy cannot fix are suppressed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

COMPILE = "import sys, components.core.policy; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')"


def stderr_of_compiling(source: Path) -> str:
    command = [sys.executable, "-c", COMPILE, str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr


def test_warnings_are_suppressed_for_tf_agents_but_not_for_own_code(tmp_path: Path) -> None:
    spec = find_spec("tf_agents")
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).parent / "utils" / "common.py"
    assert stderr_of_compiling(source) == ""
    ours = tmp_path / "own.py"
    ours.write_bytes(source.read_bytes())
    assert "SyntaxWarning" in stderr_of_compiling(ours)
