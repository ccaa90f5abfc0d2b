"""toolchain.json: writing, reading, and refusal of damaged ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.toolchain import CAPABILITIES, FILE_NAME, Mode, Toolchain, load_toolchain
from components.platform.errors import UserError


def write(directory: Path, mode: Mode = "training") -> Toolchain:
    specs: tuple[FeatureSpec, ...] = (FeatureSpec("callee_users", "int64"), FeatureSpec("heat", "float32", (2,)))
    features = {"inlining": specs}
    toolchain = Toolchain(directory, mode, "19.1.7", "x86_64-pc-linux-gnu", features, {"strategy": "sdk"})
    (directory / "bin").mkdir()
    toolchain.clang.touch()
    (directory / FILE_NAME).write_text(json.dumps(toolchain.to_json()))
    return toolchain


def test_written_toolchain_is_read_back(tmp_path: Path) -> None:
    written = write(tmp_path)
    assert load_toolchain(tmp_path) == written


def test_toolchain_of_an_earlier_version_has_its_capabilities(tmp_path: Path) -> None:
    document = write(tmp_path).to_json()
    assert document.pop("capabilities") == sorted(CAPABILITIES)
    (tmp_path / FILE_NAME).write_text(json.dumps(document))
    assert load_toolchain(tmp_path).capabilities == CAPABILITIES - {"trained_ranges", "program_decisions"}


def test_capabilities_with_spaces_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    document = write(tmp_path).to_json()
    later = "program_decisions"
    document["capabilities"] = [name if name == later else name.replace("_", " ") for name in document["capabilities"]]
    assert "forced decisions" in document["capabilities"]
    (tmp_path / FILE_NAME).write_text(json.dumps(document))
    toolchain = load_toolchain(tmp_path)
    assert toolchain.capabilities == CAPABILITIES
    with pytest.raises(UserError, match="forced decisions"):
        replace(toolchain, capabilities=frozenset()).require_capability("forced_decisions", "a plan")


def test_other_mode_than_required_is_refused(tmp_path: Path) -> None:
    toolchain = write(tmp_path, "release")
    assert toolchain.require_mode("release") is toolchain
    with pytest.raises(UserError, match="training toolchain"):
        toolchain.require_mode("training")


@pytest.mark.parametrize(
    ("built", "message"),
    [
        ({}, r"is not a toolchain description \(.* missing required field `clang`\)"),
        ({"clang": None}, "is not a toolchain description"),
        ({"clang": "/nowhere/clang"}, r"is not a toolchain description \(.* missing required field `clang_sha256`\)"),
        ({"clang": "/nowhere/clang", "clang_sha256": "0" * 64}, "the clang of .* is gone: /nowhere/clang"),
    ],
)
def test_external_clang_that_is_not_there_is_refused(tmp_path: Path, built: dict[str, object], message: str) -> None:
    document = write(tmp_path).to_json() | {"built": {"strategy": "external", **built}}
    (tmp_path / FILE_NAME).write_text(json.dumps(document))
    with pytest.raises(UserError, match=message):
        load_toolchain(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / FILE_NAME).unlink(), "has no toolchain.json"),
        (lambda d: (d / FILE_NAME).write_text("{"), "is not valid JSON"),
        (lambda d: (d / FILE_NAME).write_text("[]"), "is not a toolchain description"),
        (lambda d: (d / FILE_NAME).write_text('{"mode": "training"}'), "is not a toolchain description"),
        (lambda d: (d / "bin" / "clang").unlink(), "bin/clang is missing"),
    ],
)
def test_damaged_toolchain_is_refused(tmp_path: Path, damage, message: str) -> None:
    write(tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError, match=message):
        load_toolchain(tmp_path)
