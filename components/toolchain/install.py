"""Puts a clang that was linked into an install tree: a compiler that works wherever the directory is moved to."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from components.toolchain.sdk import Sdk

LINKS = ("clang++", "clang-cpp", "clang-cl")
"""The names by which clang's driver takes another role. Beside them: clang-<major>, as distributions call it."""


def install(executable: Path, sdk: Sdk, into: Path) -> None:
    """Fills `into` with bin/ and lib/clang/<major>/, where clang looks for its headers and run-time libraries.

    The executable is moved if it can be. Of the resource directory the headers, the lists that sanitizers read and the
    run-time libraries of this machine's architecture are copied: what they are links to, not the links.
    """
    (into / "bin").mkdir(parents=True)
    shutil.move(executable, into / "bin" / "clang")
    for name in (*LINKS, f"clang-{sdk.major}"):
        (into / "bin" / name).symlink_to("clang")
    resources = into / "lib" / "clang" / str(sdk.major)
    for folder in ("include", "share"):
        if (sdk.resource_directory / folder).is_dir():
            shutil.copytree(sdk.resource_directory / folder, resources / folder)
    # Package libclang-rt-<major>-dev, which clang-<major> only recommends: a plain compiler does without.
    if (sdk.resource_directory / "lib").is_dir():
        shutil.copytree(sdk.resource_directory / "lib", resources / "lib", ignore=_other_architectures)


def _other_architectures(_directory: str, names: list[str]) -> set[str]:
    """Of files named libclang_rt.<what>-<architecture>.<kind>, those that are not this machine's."""
    ours = f"-{platform.machine()}."
    return {name for name in names if "clang_rt." in name and "-" in name and ours not in name}
