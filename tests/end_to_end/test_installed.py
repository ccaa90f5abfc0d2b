"""Installs the git repository by pipx, as docs/install.md says, and works in an empty folder.

tests/repository/test_wheel.py installs the wheel of a release.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.wheel import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]
SHOWN = ("complete", "missing: the Python package tensorflow", "missing: the Python package ray")


SPECIFICATION = f"git+file://localhost{ROOT}"
"""The last commit; Debian's pipx wants a host."""


def test_commands_work_after_pipx_install(pretrained_release: Path, tmp_path: Path) -> None:
    """Shrinks a program; what needs TensorFlow says so. The packages' dependencies are those of today."""
    kept = ("HOME", "PIP_", "XDG_CACHE", "SSL_")
    variables = {name: value for name, value in os.environ.items() if name.startswith(kept)}
    variables |= {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "MLGO_CACHE_DIR": f"{tmp_path}/cache", "USE_EMOJI": "0"}
    variables |= {"PIPX_HOME": f"{tmp_path}/pipx", "PIPX_BIN_DIR": f"{tmp_path}/bin"}
    folder = tmp_path / "empty"
    folder.mkdir()

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=900)

    done = run("pipx", "install", SPECIFICATION)
    assert done.returncode == 0, done.stdout + done.stderr
    version = run("mlgo", "--version").stdout
    assert version.startswith("mlgo-pipeline 0."), version
    shown = run("mlgo", "setup").stdout.splitlines()
    assert [line.partition("  ")[2].strip() for line in shown[::2]][:3] == list(SHOWN)
    refused = run("mlgo", "run", "--recipe", "tiny", "--output", "run")
    assert refused.returncode == 1 and "remedy: mlgo setup training" in refused.stderr, refused.stderr
    (folder / "main.c").write_text("int main(int count, char **words) { return count + words[0][0]; }\n")
    build = ("sh", "-c", "cc -O2 main.c -o prog")
    done = run("mlgo", "shrink", "--release-toolchain", pretrained_release, "--", *build)
    assert done.returncode == 0 and (folder / "mlgo-shrink" / "summary.md").is_file(), done.stderr
    assert run("pipx", "uninstall", "mlgo-pipeline").returncode == 0
