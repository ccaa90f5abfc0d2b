"""Copies of Bazel's workspaces, and the outputs of Bazel in them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from components.core.projects.flags.linked_files import find_binaries
from components.core.projects.source_tree import SourceTree
from components.shrink.bazel import confine_bazel, is_workspace

OUTPUTS = "base/execroot/__main__/bazel-out/k8-opt/bin"


def test_options_of_the_workspace_stay_and_are_not_written_outside_of_the_copy(tmp_path: Path) -> None:
    workspace, shared = tmp_path / "work space", tmp_path / "shared.bazelrc"
    workspace.mkdir()
    shared.write_text("build --copt=-g")
    (workspace / ".bazelrc").symlink_to(shared)
    assert not is_workspace(workspace)
    (workspace / "WORKSPACE.bazel").touch()
    assert is_workspace(workspace)
    confine_bazel(workspace, "program")
    lines = (workspace / ".bazelrc").read_text().splitlines()
    assert lines[0] == "build --copt=-g" and shared.read_text() == lines[0]
    assert f"startup --batch --output_base='{workspace}/.mlgo-bazel'" in lines
    assert lines[-1].startswith("build ") and lines[-1].endswith("MLGO_BUILD=program")
    assert (workspace / ".bazelignore").read_text() == ".mlgo-bazel\n"


@pytest.mark.parametrize("link", ["bazel-bin", "built/bin"])
def test_outputs_of_a_workspace_are_found_once(tmp_path: Path, link: str) -> None:
    outputs = tmp_path / OUTPUTS
    for path in (outputs / "app", outputs / "app.runfiles/app"):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile("/bin/true", path)
    workspace = tmp_path / "workspace"
    (workspace / link).parent.mkdir(parents=True)
    (workspace / link).symlink_to(outputs)
    (workspace / "bazel-out").symlink_to(outputs.parents[1])
    assert {name for name, _ in find_binaries(workspace)} == {f"{link}/app", f"{link}/app.runfiles/app"}
    assert len([*find_binaries(tmp_path)]) == 2


def test_links_to_the_outputs_of_an_earlier_build_are_not_copied(tmp_path: Path) -> None:
    outputs = tmp_path / OUTPUTS
    outputs.mkdir(parents=True)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    links = {"bazel-bin": outputs, "bazel-workspace": outputs.parents[2], "include": Path("/usr/include")}
    for name, target in links.items():
        (workspace / name).symlink_to(target)
    SourceTree(workspace).copy(tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["include"]
