"""Both ways to embed one policy make clangs that compile alike."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from components.compiler.advisor import Advisor
from components.formats.toolchain import load_toolchain
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import make_toolchain


def compiled(toolchain: Path, advisor: Advisor, module: Path, output: Path) -> bytes:
    flags = advisor.flags("inlining", None, None)
    subprocess.run([toolchain / "bin" / "clang", "-Oz", *flags, "-c", module, "-o", output], check=True)
    return output.read_bytes()


@pytest.mark.slow
def test_tensorflows_form_decides_as_the_emitted_form(
    policy: Path, training_toolchain: Path, release_toolchain: Path, tiny_corpus, tmp_path: Path
) -> None:
    forms = tmp_path / "forms"
    command = [sys.executable, "-m", "components.policy", "export", "--aot", "--policy", str(policy)]
    subprocess.run([*command, "--toolchain", str(training_toolchain), "--output", str(forms)], check=True)
    embedded = tmp_path / "release"
    make_toolchain(ToolchainConfig("release", embedded, policies=(forms,), embed="tf-aot"))

    assert load_toolchain(embedded).built["embed"] == "tf-aot"
    module = tiny_corpus.directory / "lib/strings.cpp.o.bc"
    ours = compiled(release_toolchain, Advisor("release"), module, tmp_path / "ours.o")
    assert compiled(embedded, Advisor("release"), module, tmp_path / "theirs.o") == ours
    assert compiled(embedded, Advisor("default"), module, tmp_path / "heuristic.o") != ours
