"""Writes inline plans: inlining decisions for a program's modules that override the release clang's policy.

The file that `-mllvm -mlgo-inline-plan` names (InlinePlan.h) is a line of JSON {"version": 1, "problem", "llvm_major",
"modules": N, "crc"}; an index, uint64 [N, 5]: the MD5 (its first 8 bytes) of the source file's name and of its last
path component, then offset, size and CRC-32 of the module's decisions; "crc" is the CRC-32 of the index. The decisions
of each module follow in the format of forced_decisions.py. All little-endian.

A compile reads only the decisions of its own module, so a plan for thousands of modules costs no more than a small one.
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

from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.console import UserError
from components.core.storage.uri import display_path

PLAN_FILE = "inline.plan"
"""Name of the plan in the artifact of the tune step."""
PLAN_OPTION = "-mlgo-inline-plan"
_VERSION = 1
_PROBLEM = "inlining"
_INDEX_WORDS = 5
_HEADER_BYTES = 128


@dataclass(frozen=True)
class PlannedModule:
    """The decisions of one module; a compile takes those that it reaches.

    Attributes:
        source: name of the source file as on the compiler's command line.
    """

    source: str
    decisions: ForcedDecisions


def plan_flags(plan: Path) -> list[str]:
    """Return the flags that make a release clang use a plan; valid for cc1 and for the driver."""
    return ["-mllvm", f"{PLAN_OPTION}={plan.absolute()}"]


def require_plan(directory: Path) -> Path:
    """Return the path of the plan in an artifact of the tune step. UserError if there is no plan."""
    path = directory / PLAN_FILE
    if not path.is_file():
        raise UserError(
            f"there is no {PLAN_FILE} in {display_path(directory)}", "pass the output directory of mlgo tune"
        )
    return path


def write_plan(path: Path, modules: Sequence[PlannedModule], llvm_major: int) -> None:
    """Write a plan for a clang of the major version `llvm_major`."""
    contents = [module.decisions.sorted().content(_PROBLEM) for module in modules]
    names = np.array([[_md5(m.source), _md5(posixpath.basename(m.source))] for m in modules], np.uint64).reshape(-1, 2)
    sizes = np.array([len(content) for content in contents], np.uint64)
    header = {
        "version": _VERSION,
        "problem": _PROBLEM,
        "llvm_major": llvm_major,
        "modules": len(modules),
    }
    first = _HEADER_BYTES + len(modules) * _INDEX_WORDS * 8
    offsets = first + np.cumsum(sizes) - sizes
    checksums = np.array([zlib.crc32(content) for content in contents], np.uint64)
    index = np.column_stack([names, offsets, sizes, checksums]).astype("<u8").tobytes()
    path.write_bytes(_header_line(header | {"crc": zlib.crc32(index)}) + index + b"".join(contents))


def _header_line(header: dict[str, object]) -> bytes:
    # Padded, so that the offsets in the index do not depend on the checksum of the index.
    return json.dumps(header).ljust(_HEADER_BYTES - 1).encode() + b"\n"


def _md5(text: str) -> int:
    # MD5, because both LLVM and hashlib have it; it is not used for security.
    digest = hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "little")
