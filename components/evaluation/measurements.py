"""What was compiled, and how large it came out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BASELINE = "baseline"
WARMSTART = "warmstart"
POLICY = "policy"


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


@dataclass(frozen=True)
class Measurements:
    """Text size of every held-out module under every variant.

    All arrays have one entry per module, in the order of `modules`; only modules that every variant compiled are here.

    Attributes:
        modules: names, N of them.
        projects: the project of each.
        unseen_project: bool [N], true where the whole project was held out, false for an unseen module of a known one.
        sizes: variant name -> int64 [N], bytes of native text as llvm-size counts it. "baseline" is always there.
        excluded: the held-out modules that are missing here.
        compile_s: variant name -> seconds of compiling, summed over the modules.
    """

    modules: tuple[str, ...]
    projects: tuple[str, ...]
    unseen_project: np.ndarray
    sizes: dict[str, np.ndarray]
    excluded: tuple[Excluded, ...] = ()
    compile_s: dict[str, float] | None = None

    def __post_init__(self) -> None:
        count = len(self.modules)
        if BASELINE not in self.sizes:
            raise ValueError("nothing to compare with: no baseline sizes")
        lengths = {len(self.projects), len(self.unseen_project), *(len(array) for array in self.sizes.values())}
        if lengths != {count}:
            raise ValueError(f"{count} modules, but columns of {sorted(lengths)}")

    @property
    def thresholds(self) -> dict[int, np.ndarray]:
        """The sweep: ``-inline-threshold`` -> int64 [N], by rising threshold."""
        prefix = threshold_name(0)[:-1]
        found = {int(name[len(prefix) :]): size for name, size in self.sizes.items() if name.startswith(prefix)}
        return dict(sorted(found.items()))
