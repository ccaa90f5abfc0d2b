"""toolchain.json: written and read, and refused with what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.console import UserError
from components.formats.features import FeatureSpec
from components.formats.toolchain import FILE_NAME, Mode, Toolchain, load_toolchain


def write(directory: Path, mode: Mode = "training") -> Toolchain:
    specs: tuple[FeatureSpec, ...] = (FeatureSpec("callee_users", "int64"), FeatureSpec("heat", "float32", (2,)))
    features = {"inlining": specs}
    toolchain = Toolchain(directory, mode, "19.1.7", "x86_64-pc-linux-gnu", features, {"strategy": "sdk"})
    (directory / "bin").mkdir()
    toolchain.clang.touch()
    (directory / FILE_NAME).write_text(json.dumps(toolchain.to_json()))
    return toolchain


def test_there_and_back(tmp_path: Path) -> None:
    written = write(tmp_path)
    assert load_toolchain(tmp_path) == written


def test_a_mode_can_be_required(tmp_path: Path) -> None:
    toolchain = write(tmp_path, "release")
    assert toolchain.require_mode("release") is toolchain
    with pytest.raises(UserError, match="is a release toolchain, and a training one is needed"):
        toolchain.require_mode("training")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / FILE_NAME).unlink(), "toolchain.json is missing"),
        (lambda d: (d / FILE_NAME).write_text("{"), "is not valid JSON"),
        (lambda d: (d / FILE_NAME).write_text("[]"), "is not a toolchain description"),
        (lambda d: (d / FILE_NAME).write_text('{"mode": "training"}'), "is not a toolchain description"),
        (lambda d: (d / "bin" / "clang").unlink(), "bin/clang is missing"),
    ],
)
def test_damage_is_told(tmp_path: Path, damage, message: str) -> None:
    write(tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError, match=message):
        load_toolchain(tmp_path)
