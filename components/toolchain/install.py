"""Installs a linked clang, or a plugin with a launcher, into an install tree."""

from __future__ import annotations

import platform
import shlex
import shutil
from pathlib import Path

from components.core.formats.toolchain import PLUGIN
from components.toolchain.sdk import Sdk

LINKS = ("clang++", "clang-cpp", "clang-cl")
"""Names that select another mode of clang's driver. `install` adds clang-<major>, the name that distributions use."""
LINKER = "ld.lld"
"""Linker in bin/ of a release toolchain, with the same policies as its clang."""


def install_plugin(tree: Path, mode: str, sdk: Sdk, into: Path) -> None:
    """Create bin/ and lib/ in `into` from the build tree of the plugin.

    bin/clang runs the clang of the SDK, which must be installed at the same place where the toolchain is used.
    """
    for folder in ("bin", "lib"):
        (into / folder).mkdir(parents=True)
    shutil.copy2(tree / f"{mode}-plugin" / PLUGIN, into / "lib" / PLUGIN)
    shutil.copy2(tree / "launcher", into / "bin" / "clang")
    _link_names(sdk, into)


def install_wrapper(clang: Path, into: Path) -> None:
    """Create bin/clang in `into`, a script that runs `clang`, which finds its headers where it is installed."""
    (into / "bin").mkdir(parents=True)
    script = into / "bin" / "clang"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(clang))} "$@"\n')
    script.chmod(0o755)


def _link_names(sdk: Sdk, into: Path) -> None:
    for name in (*LINKS, f"clang-{sdk.major}"):
        (into / "bin" / name).symlink_to("clang")


def install(executable: Path, sdk: Sdk, into: Path) -> None:
    """Create bin/ and lib/clang/<major>/ in `into`; clang finds its headers and run-time libraries in the latter.

    A linker that was built next to a release clang becomes bin/ld.lld, which clang prefers to the system's.

    The executable is moved, across file systems copied. The headers, the sanitizers' lists and the run-time libraries
    of this machine's architecture are copied from the resource directory, with symbolic links resolved.
    """
    (into / "bin").mkdir(parents=True)
    shutil.move(executable, into / "bin" / "clang")
    _link_names(sdk, into)
    linker = executable.with_name(LINKER)
    if executable.name == "release" and linker.is_file():
        shutil.move(linker, into / "bin" / LINKER)
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
