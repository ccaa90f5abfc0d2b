"""The SDK is found, or its missing packages are reported with the command that installs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.toolchain.sdk import find_sdk


def fake_sdk(prefix: Path, version: str = "19.1.7", without: tuple[str, ...] = ()) -> Path:
    """Write an SDK of empty files, of which only the names are checked, except for the version in LLVMConfig.cmake."""
    major = version.partition(".")[0]
    files = {
        "bin/clang++",
        "bin/ld.lld",
        "lib/libLLVMAnalysis.a",
        "lib/libclangDriver.a",
        "lib/cmake/llvm/LLVMConfig.cmake",
        "lib/cmake/clang/ClangConfig.cmake",
        f"lib/clang/{major}/include/stddef.h",
    }
    for name in files - set(without):
        path = prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"set(LLVM_PACKAGE_VERSION {version})\n" if name.endswith("LLVMConfig.cmake") else "")
    return prefix


def test_installed_sdk_is_found_with_its_version() -> None:
    sdk = find_sdk(19)
    assert sdk.version.startswith("19.")
    assert sdk.clang.exists()
    assert (sdk.resource_directory / "include" / "stddef.h").exists()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prefix that llvm-config-19 names as that of the installed SDK."""
    prefix, program = tmp_path / "prefix", tmp_path / "bin" / "llvm-config-19"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho {prefix}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return prefix


@pytest.mark.parametrize(
    ("without", "packages"),
    [
        (("bin/clang++",), "clang-19"),
        (("bin/ld.lld",), "lld-19"),
        (("lib/libLLVMAnalysis.a",), "llvm-19-dev"),
        (("lib/cmake/llvm/LLVMConfig.cmake", "lib/cmake/clang/ClangConfig.cmake"), "libclang-19-dev llvm-19-dev"),
    ],
)
def test_missing_packages_are_reported_with_an_apt_command(
    install: Path, without: tuple[str, ...], packages: str
) -> None:
    with pytest.raises(UserError, match="no LLVM 19 SDK found") as caught:
        find_sdk(19)
    assert "llvm-19-dev" in caught.value.remedy
    fake_sdk(install, without=without)
    with pytest.raises(UserError, match="incomplete") as caught:
        find_sdk(19)
    assert packages in caught.value.remedy


def test_packages_are_no_remedy_for_an_sdk_of_ones_own(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"bin/ld\.lld") as caught:
        find_sdk(19, fake_sdk(tmp_path, without=("bin/ld.lld",)))
    assert "apt-get" not in caught.value.remedy and "--mode sdk" in caught.value.remedy


def test_sdk_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"18\.1\.8.*19 was requested") as caught:
        find_sdk(19, fake_sdk(tmp_path, version="18.1.8", without=("bin/ld.lld",)))
    assert "--llvm-major 18" in caught.value.remedy


def test_missing_build_programs_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError) as caught:
        find_sdk(19, fake_sdk(tmp_path / "sdk"))
    assert "ninja-build" in caught.value.remedy
