"""Digests that identify modules with equal functions."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from components.platform.errors import UserError

_FUNCTION = re.compile(r"^Function (.*) Hash: ([0-9a-f]+)$", re.MULTILINE)
_TIMEOUT_S = 120.0


class UnreadableModuleError(UserError):
    """LLVM's opt does not read a module."""


def digest_functions(bitcode: Sequence[Path], llvm_major: int) -> list[str]:
    """Return a digest of each module's functions, "" for a module that defines none.

    A source that is compiled for a shared and for a static library has one digest: LLVM's structural hash
    (llvm/IR/StructuralHash.h, LLVM 19) covers types, instructions and constants, not the relocation model. The digest
    also covers the names of the functions.

    Raises:
        UserError: opt of this LLVM version is not installed.
        UnreadableModuleError: it cannot read a module, or takes longer than two minutes.
    """
    opt = shutil.which(f"opt-{llvm_major}")
    if opt is None:
        raise UserError(
            f"opt-{llvm_major} is missing; it is needed to compare modules", f"apt-get install llvm-{llvm_major}"
        )
    return [_digest(opt, path) for path in bitcode]


def _digest(opt: str, path: Path) -> str:
    command = [opt, "-passes=print<structural-hash><detailed>", "-disable-output", str(path)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise UnreadableModuleError(
            f"{opt} did not read {path} within {_TIMEOUT_S:.0f} s", "remove the package from the recipe"
        ) from None
    if done.returncode != 0:
        messages = done.stderr.strip().splitlines()
        raise UnreadableModuleError(
            f"{opt} cannot read {path}: {messages[-1] if messages else 'no message'}", "rebuild it"
        )
    functions = sorted(_FUNCTION.findall(done.stderr))
    return hashlib.sha256(repr(functions).encode()).hexdigest() if functions else ""
