"""What was compiled, and how large it came out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from components.console import UserError

FILE = "measurements.json"

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


def write_measurements(directory: Path, measured: Measurements) -> None:
    """Writes measurements.json, for an evaluation that is completed later."""
    document = {
        "modules": measured.modules,
        "projects": measured.projects,
        "unseen_project": measured.unseen_project.tolist(),
        "sizes": {name: sizes.tolist() for name, sizes in measured.sizes.items()},
        "excluded": [asdict(module) for module in measured.excluded],
        "compile_s": measured.compile_s,
    }
    (directory / FILE).write_text(json.dumps(document) + "\n", encoding="utf-8")


def read_measurements(directory: Path) -> Measurements:
    """Reads measurements.json of an evaluation. UserError if it has none, or it is damaged."""
    path = directory / FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Measurements(
            tuple(document["modules"]),
            tuple(document["projects"]),
            np.array(document["unseen_project"], dtype=bool),
            {name: np.array(sizes, dtype=np.int64) for name, sizes in document["sizes"].items()},
            tuple(Excluded(**module) for module in document["excluded"]),
            document["compile_s"],
        )
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{directory} is no evaluation: it has no {FILE}", "make it: mlgo evaluation --help") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error!r})", "evaluate again") from None
