"""Finding the release clang with the pretrained policies, and building it once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from components.core.compiler.own_clangs import release_clang
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
    with pytest.raises(UserError, match="there is no release clang, and it cannot be built"):
        release_clang()
    assert not list((tmp_path / "cache/release").glob("*/toolchain.json"))


def test_environment_names_the_release_clang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_RELEASE_TOOLCHAIN", str(tmp_path / "clang"))
    assert release_clang() == tmp_path / "clang"
