"""Decisions that override the heuristic or policy of a compile; used to compile counterfactuals.

The training clang reads them from the file that -mlgo-forced-decisions names (ForcedDecisions.h): a line of JSON
{"version": 1, "problem", "decisions": N, "names": M}; int32 [N, 4]: two indices of names (caller and callee for
inlining, the function and -1 for regalloc), the ordinal (number of earlier decisions with the same names) and the
action, sorted by the first three unless the decisions are to be measured; M names, each terminated by NUL. All
little-endian.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.core.compiler.compile_outputs import read_output
from components.core.compiler.logs.training_log import LogError

Key = tuple[str, str, int]
"""First name, second name or "", ordinal."""
SECOND_ROUND_ORDINAL = 1 << 20
"""First ordinal of the decisions of the second time that a program goes through the inliner (ForcedDecisions.h)."""
_VERSION = 1
_REPORT_VERSION = 2


@dataclass(frozen=True)
class ForcedDecisions:
    """N decisions and their keys.

    Attributes:
        names: symbol names, undecodable bytes as surrogates.
        rows: int32 [N, 4]: first name, second name or -1, ordinal, action; see the module's docstring. Keys are unique.
    """

    names: tuple[str, ...]
    rows: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, actions: Mapping[Key, int]) -> ForcedDecisions:
        """Return the forced decisions for a mapping from key to action."""
        ids: dict[str, int] = {}
        rows = [
            (ids.setdefault(first, len(ids)), ids.setdefault(second, len(ids)) if second else -1, ordinal, action)
            for (first, second, ordinal), action in actions.items()
        ]
        return cls(tuple(ids), np.array(rows, np.int32).reshape(-1, 4))

    def actions(self) -> dict[Key, int]:
        """Return the action of each decision by key."""
        names = (*self.names, "")  # index -1
        return {(names[first], names[second], ordinal): action for first, second, ordinal, action in self.rows.tolist()}

    def sorted(self) -> ForcedDecisions:
        """Return the same decisions sorted by key, as a compile with forced decisions requires."""
        return ForcedDecisions(self.names, self.rows[self.order])

    @cached_property
    def order(self) -> npt.NDArray[np.intp]:
        """The permutation that sorts `rows` by key, intp [N]."""
        order: npt.NDArray[np.intp] = np.lexsort((self.rows[:, 2], self.rows[:, 1], self.rows[:, 0]))
        return order

    def content(self, problem: str) -> bytes:
        """Return the contents of the file that the training clang reads."""
        header = {"version": _VERSION, "problem": problem, "decisions": len(self.rows), "names": len(self.names)}
        names = "".join(name + "\0" for name in self.names).encode("utf-8", "surrogateescape")
        return json.dumps(header).encode() + b"\n" + self.rows.astype("<i4").tobytes() + names

    def write(self, path: Path, problem: str) -> None:
        """Write the file that the training clang reads."""
        path.write_bytes(self.content(problem))


def ordinals(*keys: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return the number of earlier decisions with the same key for each decision, int32 [N].

    Args:
        keys: columns, int32 [N] each, that together are the key of a decision.
    """
    decisions = len(keys[0])
    key = np.zeros(decisions, np.int64)
    for column in keys:
        key = key * (int(column.max(initial=0)) + 1) + column
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    lengths = np.diff(starts, append=decisions)
    result = np.empty(decisions, np.int32)
    result[order] = np.arange(decisions) - np.repeat(starts, lengths)
    return result


def read_unreached(path: Path, forced: ForcedDecisions) -> npt.NDArray[np.intp]:
    """Return the rows of `forced`, ascending, that the compile never reached; it was given the rows sorted.

    Raises:
        LogError: the compiler wrote no report, or the report does not fit `forced`.
    """
    try:
        report = json.loads(read_output(path))
        if (report["version"], report["decisions"]) == (_REPORT_VERSION, len(forced)):
            return np.sort(forced.order[np.array(report["unreached"], np.intp)])
    except FileNotFoundError:
        raise LogError(path, 0, "the compiler wrote no report of forced decisions") from None
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError):
        pass
    raise LogError(path, 0, "this is not the report of these forced decisions")
