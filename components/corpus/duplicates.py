"""Modules whose functions equal those of others."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from components.console import UserError

_FUNCTION = re.compile(r"^Function (.*) Hash: ([0-9a-f]+)$", re.MULTILINE)
_TIMEOUT_S = 120.0


def function_digests(bitcode: Sequence[Path], llvm_major: int) -> list[str]:
    """Return a digest of each module's functions, "" for a module that defines none.

    Two compiles of a source for a shared and for a static library have one digest: LLVM's structural hash
    (llvm/IR/StructuralHash.h, LLVM 19) sees types, instructions and constants, not the relocation model. Names of the
    functions count, too.

    Raises:
        UserError: there is no opt of this LLVM, or it cannot read a module.
    """
    opt = shutil.which(f"opt-{llvm_major}")
    if opt is None:
        raise UserError(f"opt-{llvm_major} is missing, it compares modules", f"apt-get install llvm-{llvm_major}")
    return [_digest(opt, path) for path in bitcode]


def _digest(opt: str, path: Path) -> str:
    command = [opt, "-passes=print<structural-hash><detailed>", "-disable-output", str(path)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{opt} reads {path} for more than {_TIMEOUT_S:.0f} s", "leave the package out") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise UserError(f"{opt} cannot read {path}: {said[-1] if said else 'no message'}", "build the package again")
    functions = sorted(_FUNCTION.findall(done.stderr))
    return hashlib.sha256(repr(functions).encode()).hexdigest() if functions else ""
