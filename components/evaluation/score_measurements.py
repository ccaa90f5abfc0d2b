"""What was compiled, and how the functions of it score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from components.evaluation.measurements import BASELINE, POLICY, Excluded, shared_from_json, shared_to_json
from components.evaluation.score_comparison import ScoreComparison
from components.problems.scores import logs


@dataclass(frozen=True)
class ScoreMeasurements:
    """Score of every function of the held-out modules under every variant; less is better.

    Functions are those in which there is something to decide, the same under every variant; a module may have none.

    Attributes:
        modules: names of the modules that every variant compiled, M of them. projects: of each.
        unseen_project: bool [M], true where the whole project was held out, false for an unseen module of a known one.
        functions: names, F of them, module by module.
        module: int64 [F], the place in `modules` of each function's module, never falling.
        scores: variant name -> float64 [F]. "baseline" is always there.
        excluded: the held-out modules that are missing here.
        compile_s: variant name -> seconds of compiling, summed over the modules.
    """

    measure: ClassVar[str] = "score"

    modules: tuple[str, ...]
    projects: tuple[str, ...]
    unseen_project: np.ndarray
    functions: tuple[str, ...]
    module: np.ndarray
    scores: dict[str, np.ndarray]
    excluded: tuple[Excluded, ...] = ()
    compile_s: dict[str, float] | None = None

    def __post_init__(self) -> None:
        if BASELINE not in self.scores:
            raise ValueError("nothing to compare with: no baseline scores")
        if {len(self.projects), len(self.unseen_project)} != {len(self.modules)}:
            raise ValueError(
                f"{len(self.modules)} modules, but columns of {len(self.projects)} and {len(self.unseen_project)}"
            )
        lengths = {len(self.module), *(len(array) for array in self.scores.values())}
        if lengths != {len(self.functions)}:
            raise ValueError(f"{len(self.functions)} functions, but columns of {sorted(lengths)}")
        if len(self.module) and not (self.module.min() >= 0 and self.module.max() < len(self.modules)):
            raise ValueError(f"functions of other modules than the {len(self.modules)}")

    @property
    def of_unseen_project(self) -> np.ndarray:
        """bool [F]: `unseen_project` of each function's module."""
        return self.unseen_project[self.module]

    def compare(self, variant: str, mask: np.ndarray | None = None) -> ScoreComparison:
        """`variant` against the baseline, of the functions of `mask` (bool [F], None for all)."""
        chosen = np.ones(len(self.functions), dtype=bool) if mask is None else mask
        return ScoreComparison(self.scores[BASELINE][chosen], self.scores[variant][chosen], self.module[chosen])

    def against(self, other: ScoreMeasurements, seed: int) -> dict[str, Any]:
        """See Measured."""
        scores = dict(zip(other._names(), other.scores[POLICY].tolist(), strict=True))
        theirs = np.array([scores.get(name, np.nan) for name in self._names()], dtype=np.float64)
        both = ~np.isnan(theirs)
        return ScoreComparison(theirs[both], self.scores[POLICY][both], self.module[both]).to_json(seed)

    def worsened(self, percent: float) -> tuple[str, ...]:
        """See Measured. What counts of a module is the geometric mean over its functions."""
        changed = logs(self.scores[POLICY]) - logs(self.scores[BASELINE])
        counts = np.bincount(self.module, minlength=len(self.modules))
        means = np.bincount(self.module, weights=changed, minlength=len(self.modules)) / np.maximum(counts, 1)
        growth = 100 * np.expm1(means)
        return tuple(self.modules[i] for i in np.argsort(-growth) if growth[i] > percent)

    def to_json(self) -> dict[str, Any]:
        """See Measured."""
        return {
            **shared_to_json(self),
            "functions": self.functions,
            "module": self.module.tolist(),
            "scores": {name: scores.tolist() for name, scores in self.scores.items()},
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ScoreMeasurements:
        """What `to_json` gave. KeyError, TypeError or ValueError if it is not that."""
        return cls(
            **shared_from_json(document),
            functions=tuple(document["functions"]),
            module=np.array(document["module"], dtype=np.int64),
            scores={name: np.array(scores, dtype=np.float64) for name, scores in document["scores"].items()},
        )

    def _names(self) -> list[tuple[str, str]]:
        return [(self.modules[i], name) for i, name in zip(self.module.tolist(), self.functions, strict=True)]
