"""An LLVM SDK from source: CMake's variables, a build that is interrupted or fails, and LLVM's own configuration.

A whole build of LLVM takes hours. Here a small project with the same targets is built, and LLVM itself is configured.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage import require_artifact
from components.platform.storage.cache import default_cache_dir
from components.toolchain import source
from components.toolchain.build import build_tree
from components.toolchain.config import SdkConfig
from components.toolchain.sdk import Sdk, find_sdk
from components.toolchain.sdk_build import DESCRIPTION, cmake_definitions, make_sdk
from tests.support.llvm_project import write_llvm_project


@pytest.fixture
def llvm_project(tmp_path: Path) -> Path:
    return write_llvm_project(tmp_path / "llvm-project")


def config(llvm_project: Path, tmp_path: Path, targets: str = "X86,ARM", **definitions: str) -> SdkConfig:
    options = {"targets": targets, "definitions": definitions, "cache": tmp_path / "cache", "jobs": 2}
    return SdkConfig(tmp_path / "sdk", llvm_source=str(llvm_project), **options)  # type: ignore[arg-type]


def test_sdk_is_complete_and_brings_its_source(llvm_project: Path, tmp_path: Path) -> None:
    prefix = make_sdk(config(llvm_project, tmp_path, LLVM_ENABLE_LTO="Thin"))
    require_artifact(prefix, "SDK")
    sdk = find_sdk(19, prefix)
    assert sdk == Sdk(prefix, 19, "19.1.9")
    bundled = source.find_bundled_source(sdk)
    assert bundled is not None
    source.check_source(bundled, sdk, "SDK")
    assert (prefix / "lib/liblldELF.a").is_file() and (prefix / "include/lld/Common/Driver.h").is_file()
    assert (prefix / "share/targets").read_text() == "X86;ARM"
    described = json.loads((prefix / DESCRIPTION).read_text())
    assert described["llvm_version"] == "19.1.9" and described["cmake"]["LLVM_ENABLE_LTO"] == "Thin"


def test_failed_build_keeps_what_is_built(llvm_project: Path, tmp_path: Path) -> None:
    broken = llvm_project / "llvm" / "lldELF.cpp"
    broken.write_text("int f( {\n")
    with pytest.raises(UserError, match="expected") as caught:
        make_sdk(config(llvm_project, tmp_path))
    assert "build.log" in caught.value.remedy
    assert not (tmp_path / "sdk").exists() and not list(tmp_path.glob(".sdk.partial-*"))
    built = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache" / "build").rglob("*.cpp.o")}
    assert built, "two compiles run at a time, and ninja waits for the other one"
    broken.write_text("int f;\n")
    make_sdk(replace(config(llvm_project, tmp_path), jobs=1))
    assert len(list((tmp_path / "cache" / "build").glob("sdk-*/"))) == 1
    assert {path: path.stat().st_mtime_ns for path in built} == built


def test_another_sdk_at_the_same_path_is_not_linked_into_old_trees(llvm_project: Path, tmp_path: Path) -> None:
    """The first SDK comes back from the cache with older libraries than those that were linked in between."""

    def tree(targets: str) -> Path:
        sdk = find_sdk(19, make_sdk(config(llvm_project, tmp_path, targets)))
        with build_tree(tmp_path / "cache", sdk, source.find_bundled_source(sdk), "native") as path:
            return path

    first, second = tree("X86"), tree("ARM")
    assert first != second and tree("X86") == first


def test_foreign_or_incomplete_source_is_refused(llvm_project: Path, tmp_path: Path) -> None:
    version = llvm_project / source.VERSION_FILE
    version.write_text(version.read_text().replace("MAJOR 19", "MAJOR 21"))
    with pytest.raises(UserError, match=r"is LLVM 21\.1\.9, but 19 was requested"):
        make_sdk(config(llvm_project, tmp_path))
    (llvm_project / "lld/CMakeLists.txt").unlink()
    with pytest.raises(UserError, match=r"lld/CMakeLists\.txt"):
        make_sdk(config(llvm_project, tmp_path))
    with pytest.raises(UserError, match="works with LLVM 19 or 22, not 18"):
        SdkConfig(tmp_path / "sdk", llvm_major=18)
    with pytest.raises(UserError, match="LLVM 22") as caught:
        SdkConfig(tmp_path / "sdk", llvm_major=22)
    assert "--llvm-source git:llvmorg-22" in caught.value.remedy
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("targets", "built"), [("native", "host"), ("all", "all"), ("ARM", "ARM"), ("ARM,RISCV", "ARM;RISCV")]
)
def test_targets_and_definitions_reach_cmake(targets: str, built: str, tmp_path: Path) -> None:
    variables = cmake_definitions(SdkConfig(tmp_path, targets=targets, definitions={"LLVM_ENABLE_ASSERTIONS": "ON"}))
    assert variables["LLVM_TARGETS_TO_BUILD"] == built and variables["LLVM_ENABLE_ASSERTIONS"] == "ON"
    with pytest.raises(UserError, match="LLVM_LINK_LLVM_DYLIB"):
        cmake_definitions(SdkConfig(tmp_path, definitions={"LLVM_LINK_LLVM_DYLIB": "ON"}))


@pytest.mark.parametrize("targets", ["nonsense", "X86,arm", "X86,M68k"])
def test_unknown_code_generator_is_refused_before_llvm_is_configured(
    llvm_project: Path, tmp_path: Path, targets: str
) -> None:
    listed = (
        "set(LLVM_ALL_TARGETS\n  AArch64\n  ARM # of 32 bits\n  X86\n  )\nset(LLVM_ALL_EXPERIMENTAL_TARGETS\n  M68k)\n"
    )
    project = llvm_project / "llvm/CMakeLists.txt"
    project.write_text(listed + project.read_text())
    unknown = targets.rpartition(",")[2]
    with pytest.raises(UserError, match=unknown) as caught:
        make_sdk(config(llvm_project, tmp_path, targets))
    assert "AArch64, ARM, X86; experimental" in caught.value.remedy
    assert not (tmp_path / "cache/build").exists() and not (tmp_path / "sdk").exists()
    for origin in ("deb", "git:llvmorg-19.1.7"):
        with pytest.raises(UserError, match=unknown):
            replace(config(llvm_project, tmp_path, targets), llvm_source=origin)


def test_missing_build_tools_are_named_before_the_source_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UserError, match="cmake and") as caught:
        make_sdk(SdkConfig(tmp_path / "sdk", cache=tmp_path / "cache"))
    assert "ninja-build" in caught.value.remedy and not (tmp_path / "cache").exists()


def test_projects_are_configured_next_to_clang_and_lld(llvm_project: Path, tmp_path: Path) -> None:
    sdk_config = config(llvm_project, tmp_path, LLVM_DISTRIBUTION_COMPONENTS="clang-tidy;clang-format")
    sdk_config = replace(sdk_config, projects=("clang-tools-extra", "clang"))
    definitions = cmake_definitions(sdk_config)
    assert definitions["LLVM_ENABLE_PROJECTS"] == "clang;lld;clang-tools-extra"
    installed = definitions["LLVM_DISTRIBUTION_COMPONENTS"].split(";")
    assert {"clang", "lld", "llvm-libraries", "clang-tidy", "clang-format"} <= set(installed)
    with pytest.raises(UserError, match="clang-tools-extra"):
        make_sdk(sdk_config)
    for origin in ("deb", "git:llvmorg-19.1.7"):
        with pytest.raises(UserError, match=origin):
            replace(sdk_config, llvm_source=origin)
    with pytest.raises(UserError, match="--define LLVM_ENABLE_PROJECTS") as caught:
        cmake_definitions(config(llvm_project, tmp_path, LLVM_ENABLE_PROJECTS="polly"))
    assert "--projects" in caught.value.remedy


def test_compiler_of_the_environment_builds_llvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/opt/bin/g++")
    variables = cmake_definitions(SdkConfig(tmp_path))
    assert variables["CMAKE_CXX_COMPILER"] == "/opt/bin/g++" and "LLVM_USE_LINKER" not in variables


@pytest.mark.toolchain
def test_llvm_itself_accepts_the_variables(tmp_path: Path) -> None:
    """Debian's source is configured; ninja knows what the SDK is made of, and compiles a library."""
    root = source.fetch_whole_source("deb", 19, default_cache_dir())
    assert {"AArch64", "X86"} <= set(source.read_code_generators(root)) and "M68k" not in source.read_code_generators(
        root
    )
    variables = cmake_definitions(SdkConfig(tmp_path, targets="native"))
    tree = tmp_path / "tree"
    configure = ["cmake", "-G", "Ninja", "-S", str(root / "llvm"), "-B", str(tree)]
    done = subprocess.run(
        [*configure, *(f"-D{name}={value}" for name, value in variables.items())], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "not used by the project" not in done.stderr
    listed = subprocess.run(
        ["ninja", "-C", tree, "-t", "inputs", "install-distribution-stripped"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"lib/libLLVMAnalysis.a", "lib/libclangDriver.a", "bin/clang-19"} <= set(listed.stdout.split())
    jobs = str(len(os.sched_getaffinity(0)))
    subprocess.run(["ninja", "-C", tree, "-j", jobs, "LLVMDemangle"], check=True, capture_output=True)
    assert (tree / "lib" / "libLLVMDemangle.a").is_file()
