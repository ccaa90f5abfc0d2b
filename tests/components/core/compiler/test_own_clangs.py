"""Finding the release clang with the pretrained policies, and building it once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from components.core.compiler.own_clangs import _digest, release_clang
from components.core.formats.toolchain import load_toolchain
from components.platform.errors import UserError


@pytest.mark.toolchain
def test_release_clang_is_built_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("components.core.compiler.own_clangs._CLONE_CLANG", tmp_path / "no-clone")
    monkeypatch.setattr("components.core.compiler.own_clangs.default_cache_dir", lambda: tmp_path / "cache")
    first = release_clang()
    assert load_toolchain(first).mode == "release" and "once (1 to 3 minutes)" in capfd.readouterr().out
    assert release_clang() == first and "once" not in capfd.readouterr().out
    assert sorted(path.name for path in first.parent.iterdir()) == [first.name, f"{first.name}.lock"]


def test_release_clang_that_cannot_be_built_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.core.compiler.own_clangs._CLONE_CLANG", tmp_path / "no-clone")
    monkeypatch.setattr("components.core.compiler.own_clangs.default_cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setenv("PATH", os.devnull)  # without CMake
    with pytest.raises(UserError, match="release clang"):
        release_clang()
    assert not list((tmp_path / "cache/release").glob("*/toolchain.json"))


def test_environment_names_the_release_clang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_RELEASE_TOOLCHAIN", str(tmp_path / "clang"))
    assert release_clang() == tmp_path / "clang"


def test_digest_is_that_of_llvm_and_of_the_code_that_embeds_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "components" / "core" / "policy" / "generated" / "cpp" / "policy.h"
    source.parent.mkdir(parents=True)
    source.write_text("int a;\n")
    program = tmp_path / "llvm-config-19"
    monkeypatch.setattr("components.core.compiler.own_clangs.ROOT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    digests = [_digest()]
    for version in ("19.1.7", "19.1.8"):
        program.write_text(f"#!/bin/sh\necho {version}\n")
        program.chmod(0o755)
        digests.append(_digest())
    assert digests[-1] == _digest()
    source.write_text("int b;\n")
    digests.append(_digest())
    assert len(set(digests)) == 4
