"""Writes inline plans: inlining decisions for a program's modules that override the release clang's policy.

The file that `-mllvm -mlgo-inline-plan` names (InlinePlan.h) is a line of JSON {"version": 1, "problem", "llvm_major",
"modules": N, "crc"}; an index, uint64 [N, 5]: the MD5 (its first 8 bytes) of the source file's name and of its last
path component, then offset, size and CRC-32 of the module's decisions; "crc" is the CRC-32 of the index. The decisions
of each module follow in the format of forced_decisions.py. All little-endian. If the header has "choices", a CRC-32,
the rest of the file are choices among the variants of -mlgo-keep-smaller, a line of JSON for each; readers that do not
know them find the same decisions.

A compile reads only the decisions of its own module, so a plan for thousands of modules costs no more than a small one.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from components.core.compiler.forced_decisions import ForcedDecisions
from components.platform.errors import UserError
from components.platform.storage.uri import display_path

PLAN_FILE = "inline.plan"
"""Name of the plan in the artifact of the tune step."""
PLAN_OPTION = "-mlgo-inline-plan"
_VERSION = 1
_PROBLEM = "inlining"
_INDEX_WORDS = 5
_HEADER_BYTES = 128
_DIGEST = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class PlannedModule:
    """The decisions of one module; a compile takes those that it reaches.

    Attributes:
        source: name of the source file as on the compiler's command line.
    """

    source: str
    decisions: ForcedDecisions


@dataclass(frozen=True)
class Choice:
    """A variant that `-mlgo-keep-smaller` kept, as the file of `-mlgo-choices` has it.

    Attributes:
        digest: MD5 of the module's bitcode, in hexadecimal.
        variant: name of the variant (Variants.h).
        name: source file, or linked program.
    """

    digest: str
    variant: str
    name: str


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


def read_choices(path: Path) -> list[Choice]:
    """Return the choices in a file that `-mlgo-choices` named, the last one for each module.

    Raises:
        UserError: the file cannot be read, or a line is no choice.
    """
    try:
        return _parse_choices(path.read_bytes(), display_path(path))
    except OSError as error:
        raise UserError(
            f"cannot read {display_path(path)}: {error.strerror}", "pass the file of -mlgo-choices"
        ) from None


def add_choices(plan: Path, choices: Sequence[Choice], output: Path) -> int:
    """Write a plan with choices added, in place of those that it has for the same modules; return how many it has then.

    Raises:
        UserError: the file is no plan.
    """
    data = plan.read_bytes()
    line, _, rest = data.partition(b"\n")
    try:
        header = json.loads(line)
        index_bytes = header["modules"] * _INDEX_WORDS * 8
        index = np.frombuffer(rest[:index_bytes], "<u8").reshape(header["modules"], _INDEX_WORDS)
        decided = len(line) + 1 + index_bytes + sum(index[:, 3].tolist())
        intact = header["version"] == _VERSION and index_bytes >= 0 and decided <= len(data)
        intact = intact and zlib.crc32(rest[:index_bytes]) == header["crc"]
        intact = intact and ("choices" not in header or zlib.crc32(data[decided:]) == header["choices"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        intact = False
    if not intact:
        raise UserError(f"{display_path(plan)} is not a plan, or it is damaged", "make it again with mlgo tune")
    merged = {choice.digest: choice for choice in [*_parse_choices(data[decided:], display_path(plan)), *choices]}
    # ensure_ascii, because names of files may be of any encoding.
    lines = sorted(json.dumps(asdict(choice)) + "\n" for choice in merged.values())
    section = "".join(lines).encode()
    output.write_bytes(
        _header_line(header | {"choices": zlib.crc32(section)}) + data[len(line) + 1 : decided] + section
    )
    return len(merged)


def _parse_choices(content: bytes, name: str) -> list[Choice]:
    choices: dict[str, Choice] = {}
    for number, line in enumerate(content.splitlines(), 1):
        try:
            parsed = json.loads(line)
            choice = Choice(*(parsed[field] for field in ("digest", "variant", "name")))
        except (ValueError, KeyError, TypeError, RecursionError):
            choice = Choice("", "", "")
        if not (_DIGEST.fullmatch(str(choice.digest)) and choice.variant and isinstance(choice.variant, str)):
            raise UserError(f"line {number} of {name} is not a choice of -mlgo-keep-smaller", "write the file again")
        choices[choice.digest] = choice
    return list(choices.values())


def write_plan(path: Path, modules: Sequence[PlannedModule], llvm_major: int) -> None:
    """Write a plan for a clang of the major version `llvm_major`."""
    contents = [module.decisions.sorted().content(_PROBLEM) for module in modules]
    names = np.array([[_md5(m.source), _md5(posixpath.basename(m.source))] for m in modules], np.uint64).reshape(-1, 2)
    sizes = np.array([len(content) for content in contents], np.uint64)
    header = {"version": _VERSION, "problem": _PROBLEM, "llvm_major": llvm_major, "modules": len(modules)}
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
