"""Decisions that a compile takes whatever its heuristic or policy says: how counterfactuals are compiled.

A file of them, which the training clang's -mlgo-forced-decisions names (ForcedDecisions.h), is a line of JSON
{"version": 1, "problem", "decisions": N, "names": M}; int32 [N, 4]: two indices of names (for inlining caller and
callee, for regalloc the function and -1), the ordinal (how many-th decision about these names it is, from 0) and the
action, sorted by the others unless they are to be measured; M names, each ended by NUL. All little-endian.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.compiler.training_log import LogError

Key = tuple[str, str, int]
"""First name, second name or "", ordinal."""
_VERSION = 1
_REPORT_VERSION = 2


@dataclass(frozen=True)
class ForcedDecisions:
    """N decisions by key.

    Attributes:
        names: symbol names, undecodable bytes as surrogates.
        rows: int32 [N, 4]: first name, second name or -1, ordinal, action; see the module's docstring. No key twice.
    """

    names: tuple[str, ...]
    rows: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, actions: Mapping[Key, int]) -> ForcedDecisions:
        """Return decisions by key as the compiler takes them."""
        ids: dict[str, int] = {}
        rows = [
            (ids.setdefault(first, len(ids)), ids.setdefault(second, len(ids)) if second else -1, ordinal, action)
            for (first, second, ordinal), action in actions.items()
        ]
        return cls(tuple(ids), np.array(rows, np.int32).reshape(-1, 4))

    def actions(self) -> dict[Key, int]:
        """Return the action of each decision by key."""
        names = (*self.names, "")  # the last one is number -1
        return {(names[first], names[second], ordinal): action for first, second, ordinal, action in self.rows.tolist()}

    def sorted(self) -> ForcedDecisions:
        """Return the same decisions sorted by their keys, as a compile that takes them wants them."""
        return ForcedDecisions(self.names, self.rows[self.order()])

    def order(self) -> npt.NDArray[np.intp]:
        """Return intp [N], which of these rows each of the sorted ones is."""
        return np.lexsort((self.rows[:, 2], self.rows[:, 1], self.rows[:, 0]))

    def content(self, problem: str) -> bytes:
        """Return the file that the compiler reads."""
        header = {"version": _VERSION, "problem": problem, "decisions": len(self.rows), "names": len(self.names)}
        names = "".join(name + "\0" for name in self.names).encode("utf-8", "surrogateescape")
        return json.dumps(header).encode() + b"\n" + self.rows.astype("<i4").tobytes() + names

    def write(self, path: Path, problem: str) -> None:
        """Write the file that the training clang reads."""
        path.write_bytes(self.content(problem))


def ordinals(*keys: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return how many-th occurrence of its key each decision is, int32 [N] from 0.

    Args:
        keys: int32 [N] each; together they are the key of a decision.
    """
    decisions = len(keys[0])
    key = np.zeros(decisions, np.int64)
    for column in keys:
        key = key * (int(column.max(initial=0)) + 1) + column
    order = np.argsort(key, kind="stable")
    begins = np.flatnonzero(np.diff(key[order], prepend=-1))
    lengths = np.diff(begins, append=decisions)
    result = np.empty(decisions, np.int32)
    result[order] = np.arange(decisions) - np.repeat(begins, lengths)
    return result


def read_unreached(path: Path, forced: ForcedDecisions) -> npt.NDArray[np.intp]:
    """Return rows of `forced`, ascending, that a compile which took them, sorted, never came to.

    Raises:
        LogError: the compiler wrote no report, or not this one.
    """
    try:
        report = json.loads(path.read_bytes())
        if (report["version"], report["decisions"]) == (_REPORT_VERSION, len(forced)):
            return np.sort(forced.order()[np.array(report["unreached"], np.intp)])
    except FileNotFoundError:
        raise LogError(path, 0, "the compiler wrote no report of its forced decisions") from None
    except (ValueError, KeyError, TypeError, IndexError, OverflowError):
        pass
    raise LogError(path, 0, "this is not a report of forced decisions")
