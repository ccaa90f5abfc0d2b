"""Finds the clangs of this project where the user names none, or builds them once."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from components.core.formats.toolchain import FILE_NAME
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.processes.output import read_output
from components.platform.processes.python_module import ROOT, module_command
from components.platform.storage.cache import default_cache_dir
from components.platform.storage.shared_state.file_lock import exclusive_lock

_CLONE_CLANG = ROOT / "build" / "clang"
"""What `make clang` builds."""
_VARIABLE = "MLGO_RELEASE_TOOLCHAIN"
"""Environment variable with the directory of a release clang: that of the image mlgo-clang."""
_SOURCES = ("components/toolchain", "components/core/policy")
"""Sources of the clang, and of the code that embeds its policy."""
_LLVM_CONFIG = "llvm-config-19"
"""Program whose version is that of the LLVM packages that the clang is linked from."""
_TIMEOUT_S = 60.0


def release_clang() -> Path:
    """Return the directory of a release clang with the pretrained policies: that of $MLGO_RELEASE_TOOLCHAIN, that of
    the clone, or one in the cache, which is built if it is not there.

    Raises:
        UserError: it cannot be built, because LLVM's packages are missing.
    """
    if named := os.environ.get(_VARIABLE):
        return Path(named)
    if (_CLONE_CLANG / FILE_NAME).is_file():
        return _CLONE_CLANG
    return _cached("release", ["--policy", "pretrained"], "pass one with --release-toolchain")


def training_clang() -> Path:
    """Return the directory of a training clang in the cache, which is built if it is not there."""
    return _cached("training", [], "leave out --minutes")


def run_own_step(module: str, *arguments: str | Path) -> bool:
    """Run the command line of another step, with its output on the terminal, and return whether it succeeded."""
    command = [*module_command(module), *map(str, arguments)]
    return subprocess.run(command).returncode == 0


def _cached(mode: str, options: list[str], remedy: str) -> Path:
    directory = default_cache_dir() / mode / _digest()
    directory.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(directory.with_name(f"{directory.name}.lock"), f"waiting for another build of {directory}"):
        if not (directory / FILE_NAME).is_file():
            say(f"building a {mode} clang, once (1 to 3 minutes)")
            if not run_own_step("components.toolchain", "--mode", mode, *options, "--output", directory):
                problem = f"there is no {mode} clang, and it cannot be built"
                raise UserError(problem, f"see the message above, or {remedy}")
    return directory


def _digest() -> str:
    """Return a digest of the sources of the clang and of the versions of Python and of the installed LLVM, so that new
    ones get a new clang."""
    llvm_version = read_output([_LLVM_CONFIG, "--version"], _TIMEOUT_S).strip()  # "" if none is installed
    digest = hashlib.sha256(f"{sys.version}\0{llvm_version}\0".encode())
    for folder in _SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
