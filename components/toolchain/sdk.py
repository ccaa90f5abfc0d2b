"""The installed LLVM SDK that a clang is linked from: its prefix, its version, and missing packages."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from components.core.formats.strategy import DEFAULT_LLVM_MAJOR, Strategy
from components.platform.errors import UserError

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
"""Files of the SDK that a link needs -> Debian package."""
_PLUGIN_PACKAGES = {name: _PACKAGES[name] for name in ("bin/clang++", "bin/ld.lld", _LLVM_CONFIG.as_posix())}
"""The same for a plugin, which is linked with nothing."""

_PROGRAMS = {"cmake": "cmake", "ninja": "ninja-build"}

SYSTEM_LIBRARIES = "libz3-dev libcurl4-openssl-dev libedit-dev libffi-dev libxml2-dev libzstd-dev zlib1g-dev"
"""Debian packages of the libraries that LLVM's CMake files look for."""


@dataclass(frozen=True)
class Sdk:
    """A complete SDK.

    Attributes:
        version: such as "19.1.7".
    """

    prefix: Path
    major: int
    version: str

    @property
    def clang(self) -> Path:
        return self.prefix / "bin" / "clang"

    @property
    def resource_directory(self) -> Path:
        """Directory of clang's headers and run-time libraries."""
        return self.prefix / "lib" / "clang" / str(self.major)


def find_sdk(major: int, prefix: Path | None = None, strategy: Strategy = "sdk") -> Sdk:
    """Return the SDK at `prefix`, or the installed one, with the files that `strategy` needs.

    Raises:
        UserError: there is none, it has another version, or files are missing; for the installed SDK and for programs
            the remedy has the apt command.
    """
    installed = prefix is None
    prefix = prefix.absolute() if prefix else _find_prefix(major)
    templates = _PLUGIN_PACKAGES if strategy == "plugin" else _PACKAGES
    packages_by_file = {name.format(major=major): package.format(major=major) for name, package in templates.items()}
    missing = [name for name in packages_by_file if not (prefix / name).exists()]
    config = prefix / _LLVM_CONFIG
    # Checked before the missing files: an SDK of another version lacks many, and installing them would be wrong.
    version = _read_version(config) if config.exists() else ""
    if version and version.partition(".")[0] != str(major):
        raise UserError(
            f"the LLVM SDK in {prefix} is version {version}, but {major} was requested",
            f"pass --llvm-major {version.partition('.')[0]}, or install the other with: "
            f"{apt_line(set(packages_by_file.values()))}",
        )
    if missing and not installed:
        raise UserError(
            f"{prefix} is no complete SDK of LLVM {major}: {missing[0]} is missing",
            "pass --sdk the prefix of an SDK, such as the output of mlgo toolchain --mode sdk, or omit it for the "
            "installed one",
        )
    if packages := {packages_by_file[name] for name in missing} | missing_build_tools():
        state = f"the LLVM {major} SDK in {prefix} is incomplete" if prefix.is_dir() else f"no LLVM {major} SDK found"
        # The line has what the SDK needs; the command also installs what a build looks for later.
        remedy = "mlgo setup debian, or " if major == DEFAULT_LLVM_MAJOR else ""
        raise UserError(f"{state}: {', '.join(sorted(packages))} missing", f"{remedy}{apt_line(packages)}")
    return Sdk(prefix, major, version)


def missing_build_tools() -> set[str]:
    """Return the Debian packages of the programs that build clangs and SDKs and are not installed."""
    return {package for program, package in _PROGRAMS.items() if shutil.which(program) is None}


def require_all_targets(sdk: Sdk) -> None:
    """Check that the SDK has the code generators of all targets; the one in the container image does not.

    Raises:
        UserError: it has only this machine's.
    """
    archive = sdk.prefix / "lib" / "libLLVMAMDGPUCodeGen.a"
    if archive.exists() and archive.stat().st_size < 1000:
        raise UserError(
            f"the LLVM SDK in {sdk.prefix} only has the code generator of this machine",
            "omit --targets all, pass --sdk the output of mlgo toolchain --mode sdk --targets all, or use Debian's "
            "packages, outside of the container image",
        )


def apt_line(packages: set[str]) -> str:
    """Return the command that installs `packages`."""
    return f"sudo apt-get install {' '.join(sorted(packages))}"


def _find_prefix(major: int) -> Path:
    """Return the prefix that llvm-config prints, or without llvm-config the prefix of Debian's packages."""
    llvm_config = shutil.which(f"llvm-config-{major}")
    if llvm_config:
        done = subprocess.run([llvm_config, "--prefix"], capture_output=True, text=True, errors="replace", timeout=60)
        if done.returncode == 0 and done.stdout.strip():
            return Path(done.stdout.strip())
    return Path(f"/usr/lib/llvm-{major}")


def _read_version(config: Path) -> str:
    match = re.search(r"^set\(LLVM_PACKAGE_VERSION\s+\"?([0-9][^\s\")]*)", config.read_text(), re.MULTILINE)
    if match is None:
        raise UserError(f"{config} does not state its LLVM version", "reinstall the SDK")
    return match[1]
