"""Projects that are shrunk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from components.core.formats.toolchain import Toolchain
from components.core.projects.compiler_scripts import write_binutils, write_bitcode_tools, write_compilers
from components.shrink.differences.find import Differences, FinishedBuild, find_differences
from components.shrink.differences.records import Call, read_calls

LLVM = Path("/usr/lib/llvm-19/bin")
CLANG, NM = LLVM / "clang", LLVM / "llvm-nm"


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The directory of a project, with the files of the test module's SOURCES: texts by their names."""
    directory = tmp_path / "project"
    directory.mkdir()
    for name, text in request.module.SOURCES.items():
        (directory / name).write_text(text)
    return directory


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    """Stock clang in place of a release clang, and a cache of the test's own."""
    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "clang/bin").mkdir(parents=True)
    (tmp_path / "clang/bin/clang").symlink_to("/usr/bin/clang-19")
    return Toolchain(tmp_path / "clang", "release", "19.1.7", "x86_64-pc-linux-gnu", {"inlining": ()}, {})


class Project:
    """A directory in which scripts record what they run."""

    def __init__(self, root: Path, binutils: Mapping[str, Path] | None = None) -> None:
        self.root, self.tools = root / "project", root / "tools"
        self.records = self.tools / "records"
        for directory in (self.root, self.records):
            directory.mkdir(parents=True)
        path = os.environ["PATH"]
        write_compilers(self.tools, CLANG, ["-Qunused-arguments"], records=str(self.records))
        write_binutils(self.tools, binutils or {}, path)
        write_bitcode_tools(self.tools, LLVM / "ld.lld", [], path, str(self.records))
        self.environment = {**os.environ, "PATH": f"{self.tools}:{path}"}

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.root / name.replace("__", ".")).write_text(text)

    def run(self, script: str) -> None:
        subprocess.run(["sh", "-exc", script], cwd=self.root, env=self.environment, check=True, timeout=120)

    def calls(self) -> list[Call]:
        return read_calls(self.records)

    def build(self, own: str, new: str, lto: bool = False, gnu: bool = False) -> Differences:
        """Run the commands of an own build by gcc and of another, whose files are in own/ and files/, and return the
        differences of the second."""
        tools = f"{self.tools}:"
        script = f"mkdir -p own files; export OUT=own; PATH=${{PATH#{tools}}}; {own}; "
        self.run(f"{script}rm -f ../tools/records/*; export OUT=files; PATH={tools}$PATH; {new}")
        root = self.root
        return find_differences(
            FinishedBuild(self.records, root, root / "files", root / "own", CLANG, NM, (), lto, gnu=gnu)
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose path is like the names of a configure script's checks."""
    return Project(tmp_path / "my-conftest-1.0")
