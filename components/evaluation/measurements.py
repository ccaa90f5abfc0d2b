"""Values of the held-out modules under every variant, and the files measurements.json and report.csv."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from components.core.compiler.source_language import source_language
from components.core.objectives import OBJECTIVES, SIZE, Objective
from components.core.objectives.estimate import CODE, MODULES, PROJECTS, Estimate, Target, estimate
from components.evaluation.metrics_types import Excluded, ScoreComparison, SizeComparison
from components.evaluation.overlap import Overlap
from components.platform.console.escape import csv_text
from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, expect_shape, read_json

FILE = "measurements.json"
BASELINE = "baseline"
WARMSTART = "warmstart"
REFERENCE = "reference"
POLICY = "policy"
SECTIONS = (".text", ".rodata", ".eh_frame", ".gcc_except_table")
"""Kinds of sections with text bytes."""
IDENTIFIER = "default"
"""Identifier of a whole module. Inlining has one context per module; ml-compiler-opt's inlining demo uses this one."""


def threshold_name(threshold: int) -> str:
    """Return the name of the variant with the default heuristic and another ``-inline-threshold``."""
    return f"inline-threshold={threshold}"


@dataclass(frozen=True)
class Measurements:
    """Value of each case of the held-out modules under every variant; smaller is better.

    A case is a module, or a function of a module if the objective compares functions. Contains only the M modules, with
    C cases, that compiled under every variant.

    Attributes:
        modules: names. projects: the project of each.
        sources: int64 [M], modules of one source, or of copies of it, have one number; each has its own if unknown.
        unseen_project: bool [M], true if the whole project is held out, false for an unseen module of a known project.
        values: variant name -> int64 or float64 [C]; always has "baseline".
        functions: names of the cases, grouped by module, if they are functions, otherwise ().
        module: int64 [C], the index of each case's module, ascending.
        languages: `Language` of each module; () if unknown.
        sections: variant name -> one of SECTIONS -> int64 [M], bytes; baseline and policy, or {} if unknown.
        overlap: functions that training compiled, too; None if unknown.
        excluded: the held-out modules without values.
        compile_s: variant name -> seconds of compiling, summed over the modules.
    """

    objective: Objective
    modules: tuple[str, ...]
    projects: tuple[str, ...]
    unseen_project: np.ndarray
    values: dict[str, np.ndarray]
    functions: tuple[str, ...] = ()
    module: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    languages: tuple[str, ...] = ()
    sections: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    excluded: tuple[Excluded, ...] = ()
    compile_s: dict[str, float] | None = None
    sources: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    overlap: Overlap | None = None

    def __post_init__(self) -> None:
        count, labels = len(self.modules), self.objective.labels
        if not self.sources.size:
            object.__setattr__(self, "sources", np.arange(count))
        if self.cases_are_modules:
            object.__setattr__(self, "module", np.arange(count))
        if BASELINE not in self.values:
            raise ValueError(f"the baseline {labels.values_key} are missing")
        lengths = {len(self.projects), len(self.unseen_project), len(self.languages or self.modules), len(self.sources)}
        lengths |= {len(column) for parts in self.sections.values() for column in parts.values()}
        lengths |= self.overlap.lengths() if self.overlap else set()
        if lengths != {count}:
            raise ValueError(f"{count} modules, but columns of {sorted(lengths)}")
        cases = count if self.cases_are_modules else len(self.functions)
        lengths = {len(self.module), *map(len, self.values.values())}
        if lengths != {cases}:
            raise ValueError(f"{cases} {labels.cases}, but columns of {sorted(lengths)}")
        if len(self.module) and not (self.module.min() >= 0 and self.module.max() < count):
            raise ValueError(f"{labels.cases} refer to other modules than the {count}")

    @property
    def cases_are_modules(self) -> bool:
        """Whether the cases are modules."""
        return self.objective.labels.case == "module"

    @property
    def case_in_unseen_project(self) -> np.ndarray:
        """`unseen_project` of each case's module, bool [C]."""
        return self.unseen_project[self.module]

    @property
    def thresholds(self) -> dict[int, np.ndarray]:
        """The sweep: ``-inline-threshold`` -> values [C], by ascending threshold."""
        prefix = threshold_name(0)[:-1]
        sweep = {int(name[len(prefix) :]): values for name, values in self.values.items() if name.startswith(prefix)}
        return dict(sorted(sweep.items()))

    @cached_property
    def _project_numbers(self) -> np.ndarray:
        """The number of each module's project, int64 [M]."""
        return np.unique(np.array(self.projects, dtype=object), return_inverse=True)[1]

    def _counted(self, chosen: np.ndarray) -> np.ndarray:
        """Return whether each of the chosen cases is the first one of its function in its project, bool [chosen].

        Inline functions are in several modules, and say the same in each. All modules count."""
        if self.cases_are_modules:
            return np.ones(int(chosen.sum()), bool)
        seen: set[tuple[str, str, float]] = set()
        counted = []
        for case in np.flatnonzero(chosen).tolist():
            key = self.projects[int(self.module[case])], self.functions[case], float(self.values[BASELINE][case])
            counted.append(key not in seen)
            seen.add(key)
        return np.array(counted, bool)

    def compare(self, variant: str, modules: np.ndarray | None = None, baseline: str = BASELINE) -> Comparison:
        """Compare a variant with another one, for the modules of a mask (bool [M], None for all)."""
        chosen = np.ones(len(self.module), bool) if modules is None else modules[self.module]
        return self._compare(self.values[baseline][chosen], self.values[variant][chosen], chosen)

    def compare_policies(self, other: Measurements, modules: Collection[str] | None = None) -> Comparison:
        """Compare this policy with the policy of `other` over the common cases.

        Args:
            modules: names of the modules that count; None for all.
        """
        values = zip(other.names(), other.values[POLICY].tolist(), strict=True)
        by_name = {name: value for name, value in values if modules is None or name[0] in modules}
        common = np.array([name in by_name for name in self.names()], bool)
        baseline = np.array([by_name[name] for name in self.names() if name in by_name], self.values[POLICY].dtype)
        return self._compare(baseline, self.values[POLICY][common], common)

    def _compare(self, baseline: np.ndarray, other: np.ndarray, chosen: np.ndarray) -> Comparison:
        """Compare values of the cases of a mask, bool [C]."""
        module = self.module[chosen]
        return Comparison(
            objective=self.objective,
            baseline=baseline,
            other=other,
            module=module,
            source=self.sources[module],
            project=self._project_numbers[module],
            unseen=self.unseen_project[module],
            counted=self._counted(chosen),
        )

    def with_functions_once(self) -> Measurements | None:
        """Return the text under the heuristic and the policy with each function once in its project, in equal parts in
        the modules that define it; None if unknown."""
        known = self.overlap
        if known is None or known.repeated is None or known.repeated_policy is None:
            return None
        repeated = {BASELINE: known.repeated, POLICY: known.repeated_policy}
        return replace(self, values={name: self.values[name] - column for name, column in repeated.items()})

    def policy_values_for(self, other: Measurements) -> np.ndarray:
        """Return the policy's values of the cases of `other`, in its order; -1 for a case that is missing here."""
        by_name = dict(zip(self.names(), self.values[POLICY].tolist(), strict=True))
        return np.array([by_name.get(name, -1) for name in other.names()], self.values[POLICY].dtype)

    def regressed_modules(self, percent: float) -> tuple[str, ...]:
        """Return the modules that the policy makes worse by more than `percent`, the worst first."""
        growth = np.zeros(len(self.modules))
        for index in np.unique(self.module).tolist():
            mask = self.module == index
            reduction = self.objective.reduction(self.values[BASELINE][mask], self.values[POLICY][mask])
            growth[index] = -100 * reduction if reduction is not None else 0.0
        return tuple(self.modules[i] for i in np.argsort(-growth) if growth[i] > percent)

    def names(self) -> list[tuple[str, str]]:
        """Return the names of each case's module and function ("" for a module)."""
        functions = self.functions or ("",) * len(self.module)
        return [(self.modules[i], name) for i, name in zip(self.module.tolist(), functions, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return the content of measurements.json."""
        values = {name: values.tolist() for name, values in self.values.items()}
        sections = {
            name: {section: column.tolist() for section, column in parts.items()}
            for name, parts in self.sections.items()
        }
        cases = {"functions": self.functions, "module": self.module.tolist()}
        parts = {"languages": self.languages, "sections": sections}
        parts |= {"overlap": self.overlap.to_json()} if self.overlap else {}
        return {
            "measure": self.objective.name,
            "modules": self.modules,
            "projects": self.projects,
            "unseen_project": self.unseen_project.tolist(),
            "sources": self.sources.tolist(),
            "excluded": [asdict(module) for module in self.excluded],
            "compile_s": self.compile_s,
            self.objective.labels.values_key: values,
            **(parts if self.cases_are_modules else cases),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Measurements:
        """Restore measurements from their JSON form. KeyError, TypeError or ValueError if that is not possible."""
        read = msgspec.convert(document, _Document)
        objective = OBJECTIVES[read.measure]
        number, dtype = (int, np.int64) if objective.additive else (float, np.float64)
        values = msgspec.convert(document[objective.labels.values_key], dict[str, list[number]])  # type: ignore[valid-type]
        languages = read.languages if objective.labels.case == "module" else ()
        if objective.labels.case == "module" and not languages:
            # Measurements of the first version have no languages, but most follow from the names of the modules.
            languages = tuple(source_language((), name) for name in read.modules)
        return cls(
            objective=objective,
            modules=read.modules,
            projects=read.projects,
            unseen_project=np.array(read.unseen_project, dtype=bool),
            values={name: np.array(column, dtype=dtype) for name, column in values.items()},
            functions=read.functions,
            module=np.array(read.module, dtype=np.int64),
            languages=languages,
            sections={
                name: {section: np.array(column, dtype=np.int64) for section, column in parts.items()}
                for name, parts in read.sections.items()
            },
            excluded=read.excluded,
            compile_s=read.compile_s,
            sources=np.array(read.sources, dtype=np.int64),
            overlap=None if read.overlap is None else Overlap.from_json(read.overlap),
        )


class _Document(msgspec.Struct, kw_only=True):
    """measurements.json: the fields of `Measurements` without the values, whose key depends on the objective."""

    measure: str = SIZE.name  # the first version had only sizes
    modules: tuple[str, ...]
    projects: tuple[str, ...]
    unseen_project: list[bool]
    functions: tuple[str, ...] = ()
    module: list[int] = []
    languages: tuple[str, ...] = ()
    sections: dict[str, dict[str, list[int]]] = {}
    excluded: tuple[Excluded, ...]
    compile_s: dict[str, float] | None
    sources: list[int] = []
    overlap: dict[str, list[int]] | None = None


def write_measurements(directory: Path, measured: Measurements) -> None:
    """Write measurements.json, which completing and comparing evaluations reads."""
    (directory / FILE).write_text(json.dumps(measured.to_json()) + "\n", encoding="utf-8")


def read_measurements(directory: Path) -> Measurements:
    """Read measurements.json of an evaluation. UserError if it is missing or damaged."""
    path = directory / FILE
    try:
        document = read_json(path, "evaluate again")
    except MissingFile:
        raise UserError(f"{directory} is no evaluation: it has no {FILE}", "make one: mlgo evaluation --help") from None
    with expect_shape(path, "the measurements of an evaluation", "evaluate again"):
        return Measurements.from_json(document)


def report_csv(measured: Measurements) -> str:
    """Return module name, identifier, value under the heuristic and under the policy as CSV, in module order.

    This is the performance report of ml-compiler-opt's demos. The identifier of a function is its name, as in the
    register allocator's demo: the context of its training log.
    """
    unit = measured.objective.labels.unit
    names = ((csv_text(module), csv_text(function or IDENTIFIER)) for module, function in measured.names())
    values = (measured.values[variant].tolist() for variant in (BASELINE, POLICY))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("module_name", "identifier", f"heuristic_{unit}", f"policy_{unit}"))
    writer.writerows((*name, *pair) for name, *pair in zip(names, *values, strict=True))
    return text.getvalue()


@dataclass(frozen=True)
class Comparison:
    """Values of the same cases under the heuristic (baseline) and under another variant; smaller is better.

    Attributes:
        baseline: [C], value of each case under LLVM's own heuristic.
        other: [C], values of the same cases, in the same order, under the other variant.
        module, source, project: int64 [C], the index of each case's module, of its source, and of its project.
        unseen: bool [C], whether the whole project is held out.
        counted: bool [C], whether a case counts for other code, see `Measurements._counted`.
    """

    objective: Objective
    baseline: np.ndarray
    other: np.ndarray
    module: np.ndarray
    source: np.ndarray
    project: np.ndarray
    unseen: np.ndarray
    counted: np.ndarray

    def __post_init__(self) -> None:
        columns = (self.baseline, self.other, self.module, self.source, self.project, self.unseen, self.counted)
        if len(shapes := {column.shape for column in columns}) != 1 or self.baseline.ndim != 1:
            raise ValueError(
                f"two variants of the same {self.objective.labels.cases} have different shapes: {sorted(shapes)}"
            )

    @property
    def reduction_percent(self) -> float | None:
        """Reduction of all values together in percent; positive is better, None if there is nothing to compare."""
        reduction = self.objective.reduction(self.baseline, self.other)
        return None if reduction is None else 100.0 * reduction

    def other_modules(self) -> Estimate | None:
        """Return what these cases say of other modules of the same projects."""
        return self._estimate(MODULES, self.counted, self.source)

    def other_projects(self) -> Estimate | None:
        """Return what the cases of unseen projects say of other projects."""
        return self._estimate(PROJECTS, self.counted & self.unseen, self.project)

    def gain(self) -> Estimate | None:
        """Return the gain of one policy over another for code of these projects: by project if there are at least five,
        because policies differ by project, else by module."""
        known = self._estimate(CODE, self.counted, self.project)
        return known if known is not None and known.interval95 is not None else self.other_modules()

    def _estimate(self, target: Target, cases: np.ndarray, unit: np.ndarray) -> Estimate | None:
        return estimate(self.objective, target, self.baseline[cases], self.other[cases], unit[cases])

    def figures(self, of_policies: bool = False) -> SizeComparison | ScoreComparison:
        """Return the entry of metrics.json. of_policies: both variants are policies, see `gain`."""
        figures: dict[str, Any] = {
            "modules": int(np.unique(self.module).size),
            "reduction_percent": self.reduction_percent,
            "other_modules": self.gain() if of_policies else self.other_modules(),
            "other_projects": self.other_projects(),
            "of_unseen_projects": bool(self.unseen.size and self.unseen.all()),
        }
        less, equal, more = (int((np.sign(self.other - self.baseline) == sign).sum()) for sign in (-1, 0, 1))
        if self.objective.additive:
            figures |= {"modules_smaller": less, "modules_equal": equal, "modules_larger": more}
            return SizeComparison(
                baseline_bytes=self.baseline.sum().item(), policy_bytes=self.other.sum().item(), **figures
            )
        figures |= {"functions_lower": less, "functions_equal": equal, "functions_higher": more}
        return ScoreComparison(functions=int(self.baseline.size), **figures)
