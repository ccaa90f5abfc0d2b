"""Installs a linked clang into a relocatable install tree."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from components.toolchain.sdk import Sdk

LINKS = ("clang++", "clang-cpp", "clang-cl")
"""Names that select another mode of clang's driver. `install` adds clang-<major>, the name that distributions use."""


def install(executable: Path, sdk: Sdk, into: Path) -> None:
    """Create bin/ and lib/clang/<major>/ in `into`; clang finds its headers and run-time libraries in the latter.

    The executable is moved, across file systems copied. The headers, the sanitizers' lists and the run-time libraries
    of this machine's architecture are copied from the resource directory, with symbolic links resolved.
    """
    (into / "bin").mkdir(parents=True)
    shutil.move(executable, into / "bin" / "clang")
    for name in (*LINKS, f"clang-{sdk.major}"):
        (into / "bin" / name).symlink_to("clang")
    resources = into / "lib" / "clang" / str(sdk.major)
    for folder in ("include", "share"):
        if (sdk.resource_directory / folder).is_dir():
            shutil.copytree(sdk.resource_directory / folder, resources / folder)
    # From the package libclang-rt-<major>-dev, which clang-<major> only recommends: a plain compiler works without it.
    if (sdk.resource_directory / "lib").is_dir():
        shutil.copytree(sdk.resource_directory / "lib", resources / "lib", ignore=_other_architectures)


def _other_architectures(_directory: str, names: list[str]) -> set[str]:
    """Return the files named libclang_rt.<name>-<architecture>.<kind> of other architectures than this machine's."""
    ours = f"-{platform.machine()}."
    return {name for name in names if "clang_rt." in name and "-" in name and ours not in name}
