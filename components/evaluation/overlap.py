"""How much of the held-out code training compiled, too, and how much several held-out modules of a project define.

Inline functions and templates are in each module that uses them, but a link keeps one definition of a weak name. Their
instructions may differ by module: a policy decides by what a module does with a function. Three modules of LLVM are
30.9% smaller in sum, 28.4% with each name once, and 28.7% as one shared library. With each pair of a name and
instructions once, they would be 26.8% smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from components.core.compiler.objects.function_digests import Digests, FunctionDigests, name_digests
from components.core.compiler.objects.function_sizes import FunctionSizes
from components.evaluation.metrics_types import OverlapFigures, SectionComparison

Bytes = NDArray[np.int64]
_WeakFunctions = tuple[Digests, Bytes]


@dataclass(frozen=True)
class Overlap:
    """Bytes of the functions of held-out modules, int64 [M] each.

    Attributes:
        functions: all functions under LLVM's heuristic.
        known: those that a module of the trace has, too, by name and instructions.
        known_bodies: those of `LEAST_BYTES` whose instructions a module of the trace has, under any name.
        new_policy: functions under the policy that are not `known`.
        repeated: what a module loses if each of the n modules of its project that define a weak function keeps an n-th
            of its own definition. None in files of earlier versions.
        repeated_policy: the same under the policy.
    """

    functions: Bytes
    known: Bytes
    known_bodies: Bytes
    new_policy: Bytes
    repeated: Bytes | None = None
    repeated_policy: Bytes | None = None

    def figures(self, modules: NDArray[np.bool_]) -> OverlapFigures:
        """Return the entry of metrics.json for the modules of a mask, bool [M]."""
        sums = {name: int(column[modules].sum()) for name, column in self._columns().items()}
        rest = SectionComparison.of(sums["functions"] - sums["known"], sums["new_policy"])
        return OverlapFigures(
            function_bytes=sums["functions"],
            known_bytes=sums["known"],
            known_body_bytes=sums["known_bodies"],
            new_functions=rest,
        )

    def of(self, modules: NDArray[np.bool_]) -> Overlap:
        return Overlap(**{name: column[modules] for name, column in self._columns().items()})

    def lengths(self) -> set[int]:
        return set(map(len, self._columns().values()))

    def _columns(self) -> dict[str, Bytes]:
        return {name: column for name, column in vars(self).items() if column is not None}

    def to_json(self) -> dict[str, list[int]]:
        return {name: column.tolist() for name, column in self._columns().items()}

    @classmethod
    def from_json(cls, document: dict[str, list[int]]) -> Overlap:
        """Restore it from its JSON form. TypeError or ValueError if that is not possible."""
        return cls(**{c.name: np.array(document[c.name], np.int64) for c in fields(cls) if c.name in document})


@dataclass
class OverlapCounter:
    """Counts the functions of compiled modules, one at a time, because their names take much memory.

    Attributes:
        trained: functions of the trace.
    """

    trained: FunctionDigests
    _known: dict[str, frozenset[str]] = field(default_factory=dict)
    _rows: dict[str, dict[str, int]] = field(default_factory=dict)
    _baseline: dict[str, _WeakFunctions] = field(default_factory=dict)
    _policy: dict[str, _WeakFunctions] = field(default_factory=dict)

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
        self._baseline[module] = _weak_functions(sizes)

    def add_policy(self, module: str, sizes: FunctionSizes) -> None:
        """Count the functions of a module under the policy, after those under the heuristic."""
        if module in self._rows:
            known = np.zeros(len(sizes.instructions), bool)
            is_known = [name in self._known[module] for name in sizes.names]
            known[sizes.entry[np.array(is_known, bool)]] = True
            self._rows[module]["new_policy"] = int(sizes.whole[~known].sum())
            self._policy[module] = _weak_functions(sizes)

    def overlap(self, modules: Sequence[str], projects: Sequence[str]) -> Overlap | None:
        """Return the bytes of these modules of `projects`; None unless both compiles of each were counted."""
        if not modules or not all(module in self._policy for module in modules):
            return None
        rows = [self._rows[module] for module in modules]
        return Overlap(
            **{name: np.array([row[name] for row in rows], np.int64) for name in rows[0]},
            repeated=_repeated([self._baseline[module] for module in modules], projects),
            repeated_policy=_repeated([self._policy[module] for module in modules], projects),
        )


def _weak_functions(sizes: FunctionSizes) -> _WeakFunctions:
    """Return of each function of an object whose names are all weak a digest of the name, uint64 [F], and its bytes.

    Of aliases, the name with the least digest counts.
    """
    digests = np.full(len(sizes.instructions), np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(digests, sizes.entry, name_digests(sizes))
    weak = np.ones(len(digests), bool)
    weak[sizes.entry[~sizes.weak]] = False
    return digests[weak], sizes.whole[weak]


def _repeated(modules: Sequence[_WeakFunctions], projects: Sequence[str]) -> Bytes:
    number = np.unique(np.array(projects, dtype=object), return_inverse=True)[1]
    module = np.repeat(np.arange(len(modules)), [len(digests) for digests, _ in modules])
    digests, whole = (np.concatenate(columns) for columns in zip(*modules, strict=True))
    # Digests are random: those of two functions do not differ by the numbers of two projects alone.
    keys = digests ^ number[module].astype(np.uint64)
    _, function, count = np.unique(keys, return_inverse=True, return_counts=True)
    lost = whole * (1 - 1 / count[function])
    return np.rint(np.bincount(module, lost, len(modules))).astype(np.int64)
