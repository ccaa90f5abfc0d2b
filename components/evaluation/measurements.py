"""What was compiled, and how large it came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from components.compiler.source_language import source_language
from components.evaluation.comparison import Comparison

BASELINE = "baseline"
WARMSTART = "warmstart"
POLICY = "policy"
SECTIONS = (".text", ".rodata", ".eh_frame", ".gcc_except_table")
"""Kinds of sections that text bytes are in, see `FunctionSizes.sections`."""


def threshold_name(threshold: int) -> str:
    """The variant that gives the default heuristic another ``-inline-threshold``."""
    return f"inline-threshold={threshold}"


@dataclass(frozen=True)
class Excluded:
    """A held-out module that is in no sum, because one variant of it could not be compiled.

    Attributes:
        module: its name in the corpus.
        variant: the first variant that failed.
        reason: "failed", "timeout" or "log".
        detail: the end of what the compiler said.
    """

    module: str
    variant: str
    reason: str
    detail: str


class Measured(Protocol):
    """What held-out modules came to under every variant, in whatever their problem is judged by.

    Attributes:
        measure: as `Problem.measure` has it.
        modules: names of those that every variant compiled, M of them. projects: of each.
        unseen_project: bool [M], true where the whole project was held out, false for an unseen module of a known one.
        excluded: the held-out modules that are missing.
        compile_s: variant name -> seconds of compiling, summed over the modules.
    """

    measure: ClassVar[str]

    @property
    def modules(self) -> tuple[str, ...]: ...
    @property
    def projects(self) -> tuple[str, ...]: ...
    @property
    def unseen_project(self) -> np.ndarray: ...
    @property
    def excluded(self) -> tuple[Excluded, ...]: ...
    @property
    def compile_s(self) -> dict[str, float] | None: ...

    def against(self, other: Any, seed: int) -> dict[str, Any]:
        """This policy compared with that of `other`, measurements of the same kind, over what both have; a comparison
        as metrics.json has it."""

    def worsened(self, percent: float) -> tuple[str, ...]:
        """Modules that the policy makes worse than the heuristic does by more than `percent`, the worst first."""

    def to_json(self) -> dict[str, Any]:
        """What measurements.json holds, but for its measure."""


@dataclass(frozen=True)
class Measurements:
    """Text size of every held-out module under every variant.

    All arrays have one entry per module, in the order of `modules`; only modules that every variant compiled are here.

    Attributes:
        modules: names, N of them.
        projects: the project of each.
        unseen_project: bool [N], true where the whole project was held out, false for an unseen module of a known one.
        sizes: variant name -> int64 [N], bytes of native text as llvm-size counts it. "baseline" is always there.
        languages: `Language` of each.
        sections: variant name -> one of SECTIONS -> int64 [N], bytes; baseline and policy, or nothing in measurements
            of earlier versions.
        excluded: the held-out modules that are missing here.
        compile_s: variant name -> seconds of compiling, summed over the modules.
    """

    measure: ClassVar[str] = "size"

    modules: tuple[str, ...]
    projects: tuple[str, ...]
    unseen_project: np.ndarray
    sizes: dict[str, np.ndarray]
    languages: tuple[str, ...]
    sections: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    excluded: tuple[Excluded, ...] = ()
    compile_s: dict[str, float] | None = None

    def __post_init__(self) -> None:
        count = len(self.modules)
        if BASELINE not in self.sizes:
            raise ValueError("nothing to compare with: no baseline sizes")
        columns = [*self.sizes.values(), *(array for parts in self.sections.values() for array in parts.values())]
        lengths = {len(self.projects), len(self.languages), len(self.unseen_project), *map(len, columns)}
        if lengths != {count}:
            raise ValueError(f"{count} modules, but columns of {sorted(lengths)}")

    def sizes_of(self, other: Measurements) -> np.ndarray:
        """int64: sizes under the policy of those modules that `other` has, in its order; -1 for one not here."""
        known = dict(zip(self.modules, self.sizes[POLICY].tolist(), strict=True))
        return np.array([known.get(module, -1) for module in other.modules], dtype=np.int64)

    @property
    def thresholds(self) -> dict[int, np.ndarray]:
        """The sweep: ``-inline-threshold`` -> int64 [N], by rising threshold."""
        prefix = threshold_name(0)[:-1]
        found = {int(name[len(prefix) :]): size for name, size in self.sizes.items() if name.startswith(prefix)}
        return dict(sorted(found.items()))

    def against(self, other: Measurements, seed: int) -> dict[str, Any]:
        """See Measured."""
        theirs = other.sizes_of(self)
        both = theirs >= 0
        return Comparison(theirs[both], self.sizes[POLICY][both]).to_json(seed)

    def worsened(self, percent: float) -> tuple[str, ...]:
        """See Measured."""
        before, after = self.sizes[BASELINE], self.sizes[POLICY]
        growth = 100 * (after / np.maximum(before, 1) - 1)
        return tuple(self.modules[i] for i in np.argsort(-growth) if growth[i] > percent)

    def to_json(self) -> dict[str, Any]:
        """See Measured."""
        sizes = {name: sizes.tolist() for name, sizes in self.sizes.items()}
        sections = {
            name: {section: column.tolist() for section, column in parts.items()}
            for name, parts in self.sections.items()
        }
        return {**shared_to_json(self), "sizes": sizes, "languages": self.languages, "sections": sections}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Measurements:
        """What `to_json` gave. KeyError, TypeError or ValueError if it is not that."""
        sizes = {name: np.array(sizes, dtype=np.int64) for name, sizes in document["sizes"].items()}
        sections = {
            name: {section: np.array(column, dtype=np.int64) for section, column in parts.items()}
            for name, parts in document.get("sections", {}).items()
        }
        # Measurements of earlier versions have no languages, but names of modules tell most of them.
        languages = document.get("languages") or [source_language((), name) for name in document["modules"]]
        return cls(**shared_from_json(document), sizes=sizes, languages=tuple(languages), sections=sections)


def shared_to_json(measured: Measured) -> dict[str, Any]:
    """The part of `to_json` that measurements of all kinds have."""
    return {
        "modules": measured.modules,
        "projects": measured.projects,
        "unseen_project": measured.unseen_project.tolist(),
        "excluded": [asdict(module) for module in measured.excluded],
        "compile_s": measured.compile_s,
    }


def shared_from_json(document: Mapping[str, Any]) -> dict[str, Any]:
    """What `shared_to_json` was given, as arguments by name. KeyError, TypeError or ValueError if it is not that."""
    return {
        "modules": tuple(document["modules"]),
        "projects": tuple(document["projects"]),
        "unseen_project": np.array(document["unseen_project"], dtype=bool),
        "excluded": tuple(Excluded(**module) for module in document["excluded"]),
        "compile_s": document["compile_s"],
    }
