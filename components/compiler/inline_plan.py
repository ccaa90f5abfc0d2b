"""A plan: inlining decisions of a program's modules, which the release clang takes in place of its policy's.

The file that `-mllvm -mlgo-inline-plan` names (InlinePlan.h) is a line of JSON {"version": 1, "problem", "llvm_major",
"modules": N, "crc"}; an index, uint64 [N, 5]: the MD5 (its first 8 bytes) of the source file's name and of its last
component, then offset, size and CRC-32 of the module's decisions; "crc" is the CRC-32 of the index. The decisions of
each module follow as forced_decisions.py has them. All little-endian.

A compile reads its own module's decisions only, so a plan of thousands of modules costs it no more than a small one.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.compiler.forced_decisions import ForcedDecisions
from components.console import UserError
from components.storage.uri import shown

PLAN_FILE = "inline.plan"
"""In the artifact of the tune step."""
PLAN_OPTION = "-mlgo-inline-plan"
_VERSION = 1
_PROBLEM = "inlining"
_WORDS = 5
_LINE_BYTES = 128


@dataclass(frozen=True)
class PlannedModule:
    """The decisions of one module, of which a compile takes those that it comes to.

    Attributes:
        source: name of the source file, as the compiler was given it.
    """

    source: str
    decisions: ForcedDecisions


def plan_flags(plan: Path) -> list[str]:
    """Return the flags of a release clang that takes a plan, those of cc1 and of clang."""
    return ["-mllvm", f"{PLAN_OPTION}={plan.absolute()}"]


def require_plan(directory: Path) -> Path:
    """Return the plan in an artifact of the tune step. UserError if there is none."""
    path = directory / PLAN_FILE
    if not path.is_file():
        raise UserError(f"there is no {PLAN_FILE} in {shown(directory)}", "pass the output directory of mlgo tune")
    return path


def write_plan(path: Path, modules: Sequence[PlannedModule], llvm_major: int) -> None:
    """Write a plan for clangs of this LLVM."""
    contents = [module.decisions.sorted().content(_PROBLEM) for module in modules]
    names = np.array([[_md5(m.source), _md5(posixpath.basename(m.source))] for m in modules], np.uint64).reshape(-1, 2)
    sizes = np.array([len(content) for content in contents], np.uint64)
    header = {
        "version": _VERSION, "problem": _PROBLEM, "llvm_major": llvm_major, "modules": len(modules),
    }  # fmt: skip
    first = _LINE_BYTES + len(modules) * _WORDS * 8
    offsets = first + np.cumsum(sizes) - sizes
    checksums = np.array([zlib.crc32(content) for content in contents], np.uint64)
    index = np.column_stack([names, offsets, sizes, checksums]).astype("<u8").tobytes()
    path.write_bytes(_line(header | {"crc": zlib.crc32(index)}) + index + b"".join(contents))


def _line(header: dict[str, object]) -> bytes:
    # Padded, so that offsets in the index do not depend on the index' own checksum.
    return json.dumps(header).ljust(_LINE_BYTES - 1).encode() + b"\n"


def _md5(text: str) -> int:
    # LLVM has MD5 and hashlib, too; nothing is secured by it.
    digest = hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "little")
