"""Debian's source packages of four build systems go through `mlgo shrink` without a flag.

CMake is in test_shrink.py. `python -m tests.packages` takes many more, and tests what is delivered in place of the own
build's files.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from components.platform.storage.cache import default_cache_dir
from components.platform.storage.downloads.debsource import fetch_deb_source
from tests.support.commands import run_command

pytestmark = pytest.mark.toolchain


@pytest.mark.parametrize(
    ("package", "build", "command", "program", "arguments", "prints", "checked"),
    [
        ("ed", "./configure", "", "ed", ["--version"], "GNU ed", "make -k check passes"),
        (
            "pkgconf",
            "",
            "meson setup mlgo-build -Dtests=false && ninja -C mlgo-build",  # its tests need kyua
            "mlgo-build/pkgconf",
            ["--version"],
            ".",
            "no tests were found",
        ),
        ("exiftags", "", "debian/rules build", "exiftags", ["-h"], "", "no tests were found"),
        ("memtester", "make", "", "memtester", [], "memtester version", "no tests were found"),  # by debian/rules
    ],
)
def test_package_gets_smaller_and_works(
    pretrained_release: Path,
    tmp_path: Path,
    package: str,
    build: str,
    command: str,
    program: str,
    arguments: list[str],
    prints: str,
    checked: str,
) -> None:
    source = fetch_deb_source(package, default_cache_dir(), tmp_path / package)
    options = ("--source", source, "--release-toolchain", pretrained_release, "--output", tmp_path / "out")
    done = run_command(
        "components.shrink", *options, "--no-other-compilers", *([command] if command else []), timeout=900
    )
    assert done.returncode == 0, done.stderr
    assert command or f"the build: {build}" in done.stdout
    shrunk = json.loads((tmp_path / "out/shrink.json").read_text())
    assert [build["failure"] for build in shrunk["builds"]] == [""] * 4
    assert shrunk["checked"].startswith(checked)
    assert shrunk["chosen"] != "own" and shrunk["reduction_percent"] > 5
    delivered = tmp_path / "out/files" / program
    # Its own libraries are where the build was.
    libraries = ":".join({str(path.parent) for path in (tmp_path / "out/files").rglob("*.so*")})
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
    ran = subprocess.run(
        [delivered, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=environment
    )
    assert prints in ran.stdout, ran.stderr
