"""The name of the project that a build is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.corpus.sources.project_name import name_project


@pytest.mark.parametrize(
    ("build", "name"),
    [
        ("/home/user/yaml-cpp/build", "yaml-cpp"),
        ("/home/user/yaml-cpp/build/Release", "yaml-cpp"),
        ("/home/user/parser/src", "parser"),
        ("/home/user/parser/cmake-build-debug", "parser"),
        ("/home/user/parser/out/default", "parser"),
        ("/home/user/builder-tools", "builder-tools"),
        ("/build/src", "project"),
    ],
)
def test_directories_without_a_name_of_their_own_are_skipped(build: str, name: str) -> None:
    assert name_project(Path(build)) == name


def test_source_tree_of_cmake_gives_the_name(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    cache = "CMAKE_BUILD_TYPE:STRING=Release\nCMAKE_HOME_DIRECTORY:INTERNAL=/home/user/zip/source\n"
    (tmp_path / "build/CMakeCache.txt").write_text(cache)
    assert name_project(tmp_path / "build") == "zip"
