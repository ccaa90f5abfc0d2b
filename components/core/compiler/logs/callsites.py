"""Reads the callsites file of our training clang: the caller and callee of each logged inlining decision.

LLVM's log has the features and the action of a decision, but no function names. Our advisor writes the names to a
second file, F.calls for the log F: a line of JSON {"version": 1, "decisions": N, "functions": M, "source"};
int32 [N, 3] (caller's id, callee's id, 1 if the call was really inlined); uint8 [M] flags; M names, each terminated by
NUL. All little-endian; ids are indices of the names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from components.core.compiler.compile_outputs import read_output
from components.core.compiler.forced_decisions import SECOND_ROUND_ORDINAL, ordinals
from components.core.compiler.logs.training_log import LogError

_VERSION = 1
_FLAG_DISCARDABLE = 1
_COLUMNS = 3


@dataclass(frozen=True)
class Callsites:
    """The callers and callees of N decisions among M functions.

    Attributes:
        caller, callee: int32 [N], indices of `names`.
        inlined: bool [N], whether the call was actually inlined (an advised inlining can still fail).
        names: symbol names of the M functions as in the object's symbol table, undecodable bytes as surrogates.
        discardable: bool [M], whether the linker or the compiler may drop the function's definition when it is unused
            (local, linkonce*, available_externally).
        source: name of the source file, "" in files of earlier versions.
        first_round: number of decisions of the first time that a program went through the inliner; None of others.
    """

    caller: npt.NDArray[np.int32]
    callee: npt.NDArray[np.int32]
    inlined: npt.NDArray[np.bool_]
    names: list[str]
    discardable: npt.NDArray[np.bool_]
    source: str = ""
    first_round: int | None = None

    def ordinals(self) -> npt.NDArray[np.int32]:
        """Return the ordinal of each decision among those about the same caller and callee, int32 [N]."""
        if self.first_round is None:
            return ordinals(self.caller, self.callee)
        parts = (slice(self.first_round), slice(self.first_round, None))
        first, second = (ordinals(self.caller[part], self.callee[part]) for part in parts)
        return np.concatenate([first, second + np.int32(SECOND_ROUND_ORDINAL)])


def callsites_path(log: Path) -> Path:
    """Return the path to which the compiler writes the callsites of the training log `log`."""
    return log.with_name(log.name + ".calls")


def read_callsites(path: Path) -> Callsites:
    """Read the callsites file at `path`. LogError if the file is missing, truncated or corrupt."""
    try:
        data = read_output(path)
    except FileNotFoundError:
        raise LogError(path, 0, "the compiler wrote no callsites file for the training log") from None
    begin = data.find(b"\n") + 1
    decisions, functions, source, first_round = _header(path, data[:begin])
    flags_at = begin + decisions * _COLUMNS * 4
    names_at = flags_at + functions
    if names_at > len(data):
        raise LogError(path, len(data), f"the file is too short for {decisions} decisions of {functions} functions")
    table = np.frombuffer(data, "<i4", decisions * _COLUMNS, begin).reshape(decisions, _COLUMNS)
    bad = np.flatnonzero((table[:, :2] < 0).any(axis=1) | (table[:, :2] >= functions).any(axis=1))
    if len(bad):
        byte = begin + int(bad[0]) * _COLUMNS * 4
        raise LogError(path, byte, f"decision {bad[0]} refers to a function outside of the {functions}")
    names = data[names_at:].split(b"\0")
    if len(names) != functions + 1 or names[-1]:
        raise LogError(path, len(data), f"expected {functions} names, found {len(names) - 1}")
    flags = np.frombuffer(data, np.uint8, functions, flags_at)
    return Callsites(
        caller=np.ascontiguousarray(table[:, 0]),
        callee=np.ascontiguousarray(table[:, 1]),
        inlined=table[:, 2] != 0,
        names=[name.decode("utf-8", "surrogateescape") for name in names[:-1]],
        discardable=(flags & _FLAG_DISCARDABLE) != 0,
        source=source,
        first_round=first_round,
    )


def _header(path: Path, line: bytes) -> tuple[int, int, str, int | None]:
    try:
        header: dict[str, Any] = json.loads(line)
        if header["version"] != _VERSION:
            raise LogError(
                path, 0, f"the callsites file has version {header['version']}, this program reads {_VERSION}"
            )
        decisions, functions = int(header["decisions"]), int(header["functions"])
        source = str(header.get("source", ""))
        first_round = None if "first_round" not in header else int(header["first_round"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise LogError(path, 0, f"expected the header of a callsites file, found {line[:60]!r}") from None
    if decisions < 0 or functions < 0:
        raise LogError(path, 0, f"the header {line[:60]!r} has a negative count")
    return decisions, functions, source, first_round
