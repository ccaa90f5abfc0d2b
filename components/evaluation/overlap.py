"""How much of the held-out code training compiled, too, and what the policy does to the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core.compiler.objects.function_digests import FunctionDigests
from components.core.compiler.objects.function_sizes import FunctionSizes
from components.evaluation.metrics_types import OverlapFigures, SectionComparison

Bytes = NDArray[np.int64]


@dataclass(frozen=True)
class Overlap:
    """Bytes of the functions of held-out modules, int64 [M] each.

    Attributes:
        functions: all functions under LLVM's heuristic.
        known: those that a module of the trace has, too, by name and instructions.
        known_bodies: those of `LEAST_BYTES` whose instructions a module of the trace has, under any name.
        new_policy: functions under the policy that are not `known`.
    """

    functions: Bytes
    known: Bytes
    known_bodies: Bytes
    new_policy: Bytes

    def figures(self, modules: NDArray[np.bool_]) -> OverlapFigures:
        """Return the entry of metrics.json for the modules of a mask, bool [M]."""
        sums = {column.name: int(getattr(self, column.name)[modules].sum()) for column in fields(self)}
        rest = SectionComparison.of(sums["functions"] - sums["known"], sums["new_policy"])
        return OverlapFigures(
            function_bytes=sums["functions"],
            known_bytes=sums["known"],
            known_body_bytes=sums["known_bodies"],
            new_functions=rest,
        )

    def of(self, modules: NDArray[np.bool_]) -> Overlap:
        """Return that of the modules of a mask, bool [M]."""
        return Overlap(**{name: column[modules] for name, column in vars(self).items()})

    def to_json(self) -> dict[str, list[int]]:
        """Return the entry of measurements.json."""
        return {column.name: getattr(self, column.name).tolist() for column in fields(self)}

    @classmethod
    def from_json(cls, document: dict[str, list[int]]) -> Overlap:
        """Restore it from its JSON form. KeyError, TypeError or ValueError if that is not possible."""
        columns: dict[str, Any] = {c.name: np.array(document[c.name], np.int64) for c in fields(cls)}
        return cls(**columns)


@dataclass
class OverlapCounter:
    """Counts the functions of compiled modules, one at a time, because their names take much memory.

    Attributes:
        trained: functions of the trace.
    """

    trained: FunctionDigests
    _known: dict[str, frozenset[str]] = field(default_factory=dict)
    _rows: dict[str, dict[str, int]] = field(default_factory=dict)

    def add_baseline(self, module: str, sizes: FunctionSizes) -> None:
        """Count the functions of a module under LLVM's heuristic."""
        if sizes.bodies is None:  # an object that is no ELF
            return
        known, whole = self.trained.known(sizes), sizes.whole
        entries = zip(sizes.names, known[sizes.entry].tolist(), strict=True)
        self._known[module] = frozenset(name for name, is_known in entries if is_known)
        self._rows[module] = {
            "functions": int(whole.sum()),
            "known": int(whole[known].sum()),
            "known_bodies": int(whole[self.trained.known_bodies(sizes)].sum()),
        }

    def add_policy(self, module: str, sizes: FunctionSizes) -> None:
        """Count the functions of a module under the policy, after those under the heuristic."""
        if module in self._rows:
            known = np.zeros(len(sizes.instructions), bool)
            is_known = [name in self._known[module] for name in sizes.names]
            known[sizes.entry[np.array(is_known, bool)]] = True
            self._rows[module]["new_policy"] = int(sizes.whole[~known].sum())

    def overlap(self, modules: Sequence[str]) -> Overlap | None:
        """Return the bytes of these modules; None unless both compiles of each were counted."""
        rows = [self._rows.get(module, {}) for module in modules]
        names = [column.name for column in fields(Overlap)]
        if not all(len(row) == len(names) for row in rows):
            return None
        return Overlap(**{name: np.array([row[name] for row in rows], np.int64) for name in names})
