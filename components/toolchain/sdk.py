"""The installed LLVM SDK that a clang is linked from: where it is, which version, and what is missing of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from components.console import UserError

_LLVM_CONFIG = Path("lib/cmake/llvm/LLVMConfig.cmake")
_PACKAGES = {
    "bin/clang++": "clang-{major}",
    "bin/ld.lld": "lld-{major}",
    _LLVM_CONFIG.as_posix(): "llvm-{major}-dev",
    "lib/libLLVMAnalysis.a": "llvm-{major}-dev",
    "lib/cmake/clang/ClangConfig.cmake": "libclang-{major}-dev",
    "lib/libclangDriver.a": "libclang-{major}-dev",
    "lib/clang/{major}/include/stddef.h": "clang-{major}",
}
"""What a link needs of the SDK, and Debian's package of it."""

_PROGRAMS = {"cmake": "cmake", "ninja": "ninja-build"}

SYSTEM_LIBRARIES = "libz3-dev libcurl4-openssl-dev libedit-dev libffi-dev libxml2-dev libzstd-dev zlib1g-dev"
"""Debian's packages of what LLVM's own CMake files look for."""


@dataclass(frozen=True)
class Sdk:
    """An SDK in which nothing is missing. version: "19.1.7"."""

    prefix: Path
    major: int
    version: str

    @property
    def clang(self) -> Path:
        return self.prefix / "bin" / "clang"

    @property
    def resource_directory(self) -> Path:
        """Clang's own headers and run-time libraries."""
        return self.prefix / "lib" / "clang" / str(self.major)


def find_sdk(major: int, prefix: Path | None = None) -> Sdk:
    """The SDK at `prefix`, or the one that is installed.

    Raises:
        UserError: there is none, it has another version, or packages of it are missing, with the apt line for them.
    """
    prefix = prefix.absolute() if prefix else _installed(major)
    packages = {
        template.format(major=major)
        for name, template in _PACKAGES.items()
        if not (prefix / name.format(major=major)).exists()
    }
    config = prefix / _LLVM_CONFIG
    # Before what is missing: of an SDK of another version much is, and to install that would be the wrong advice.
    version = _version(config) if config.exists() else ""
    if version and version.partition(".")[0] != str(major):
        raise UserError(
            f"the LLVM SDK in {prefix} is version {version}, and {major} was asked for",
            f"pass --llvm-major {version.partition('.')[0]}, or install the other with: {apt_line(_all(major))}",
        )
    packages |= {package for program, package in _PROGRAMS.items() if shutil.which(program) is None}
    if packages:
        found = f"the LLVM {major} SDK in {prefix} is incomplete" if prefix.is_dir() else f"no LLVM {major} SDK found"
        raise UserError(f"{found}: {', '.join(sorted(packages))} missing", apt_line(packages))
    return Sdk(prefix, major, version)


def require_all_targets(sdk: Sdk) -> None:
    """UserError if the SDK's code generators for other machines were taken out, as in the container image."""
    archive = sdk.prefix / "lib" / "libLLVMAMDGPUCodeGen.a"
    if archive.exists() and archive.stat().st_size < 1000:
        raise UserError(
            f"the LLVM SDK in {sdk.prefix} has the code generator of this machine only",
            "leave --targets all out, or build with Debian's own packages, outside of the image",
        )


def apt_line(packages: set[str]) -> str:
    """The command that installs them."""
    return f"sudo apt-get install {' '.join(sorted(packages))}"


def _all(major: int) -> set[str]:
    return {template.format(major=major) for template in _PACKAGES.values()}


def _installed(major: int) -> Path:
    """llvm-config's answer, where there is one; else where Debian's packages install to."""
    llvm_config = shutil.which(f"llvm-config-{major}")
    if llvm_config:
        done = subprocess.run([llvm_config, "--prefix"], capture_output=True, text=True, timeout=60)
        if done.returncode == 0 and done.stdout.strip():
            return Path(done.stdout.strip())
    return Path(f"/usr/lib/llvm-{major}")


def _version(config: Path) -> str:
    match = re.search(r"^set\(LLVM_PACKAGE_VERSION\s+\"?([0-9][^\s\")]*)", config.read_text(), re.MULTILINE)
    if match is None:
        raise UserError(f"{config} does not say which version of LLVM it belongs to", "install the SDK again")
    return match[1]
