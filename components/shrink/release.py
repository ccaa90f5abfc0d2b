"""Finds the release clang that `mlgo shrink` uses where the user names none, or builds it once."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from components.core.formats.toolchain import FILE_NAME
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.cache import default_cache_dir
from components.platform.storage.shared_state.file_lock import exclusive_lock

_CODE = Path(__file__).resolve().parents[2]
_CLONE_CLANG = _CODE / "build" / "clang"
"""What `make clang` builds."""
_SOURCES = ("components/toolchain", "components/core/policy/pretrained")
"""What the clang is made of, but for LLVM's packages."""


def release_clang() -> Path:
    """Return the directory of a release clang with the pretrained policies: that of the clone, or one in the cache,
    which is built if it is not there.

    Raises:
        UserError: it cannot be built, because LLVM's packages are missing.
    """
    if (_CLONE_CLANG / FILE_NAME).is_file():
        return _CLONE_CLANG
    directory = default_cache_dir() / "release" / _digest()
    directory.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(directory.with_name(f"{directory.name}.lock"), f"waiting for another build of {directory}"):
        if not (directory / FILE_NAME).is_file():
            say("building a release clang with the pretrained policies, once (1 to 3 minutes)")
            arguments = ["--mode", "release", "--policy", "pretrained", "--output", str(directory)]
            done = subprocess.run([sys.executable, "-P", "-m", "components.toolchain", *arguments])
            if done.returncode != 0:
                raise UserError(
                    "there is no release clang, and it cannot be built",
                    "see the message above, or pass one with --release-toolchain",
                )
    return directory


def _digest() -> str:
    """Return a digest of the sources of the clang and of this program's Python, so that new ones get a new clang."""
    digest = hashlib.sha256(sys.version.encode())
    for folder in _SOURCES:
        for path in sorted((_CODE / folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(path.relative_to(_CODE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
