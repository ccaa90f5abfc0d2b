"""report.json of a corpus: how many objects were extracted, and which were not and why, by project."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from components.corpus.outcome import EXTRACTED, FAILED, MISSING, NO_INDEX, Outcome
from components.formats.corpus import REPORT

NO_OUTPUT = "no_output"
OUTSIDE = "outside"
COMPILE_FAILED = "compile_failed"
DAMAGED = "damaged"
DUPLICATE = "duplicate"
NO_FUNCTIONS = "no_functions"
PACKAGE_FAILED = "package_failed"
_SHOWN = 5
_EXPECTED = ("assembly", "filtered", DUPLICATE, NO_FUNCTIONS)
_PLAIN = {
    EXTRACTED: "extracted", "assembly": "made from assembly", "no_bitcode": "without bitcode", MISSING: "missing",
    "filtered": "filtered out", FAILED: "unreadable", NO_OUTPUT: "commands without an output",
    COMPILE_FAILED: "failed to compile", NO_INDEX: "without a ThinLTO index", OUTSIDE: "outside of the base directory",
    DAMAGED: "damaged", DUPLICATE: "equal to others", NO_FUNCTIONS: "without functions",
    PACKAGE_FAILED: "packages left out",
}  # fmt: skip


@dataclass(frozen=True)
class Left:
    """One thing that is not in the corpus: the object or source named, in the words of `kind` and `detail`."""

    project: str
    name: str
    kind: str
    detail: str


@dataclass(frozen=True)
class Report:
    """What became of every object. extracted: modules by project. left: everything else, nothing is dropped."""

    extracted: dict[str, int]
    left: tuple[Left, ...]

    def counts(self) -> dict[str, int]:
        counts = Counter({EXTRACTED: sum(self.extracted.values())})
        counts.update(item.kind for item in self.left)
        return dict(counts)

    def line(self) -> str:
        """One line for the user: "540 extracted, 3 made from assembly"."""
        return ", ".join(f"{number} {_PLAIN.get(kind, kind)}" for kind, number in self.counts().items())

    def examples(self) -> list[str]:
        """A few lines about objects that the user may miss."""
        odd = [item for item in self.left if item.kind not in _EXPECTED]
        lines = [f"  {_PLAIN.get(item.kind, item.kind)}: {item.name}: {item.detail}" for item in odd[:_SHOWN]]
        return lines + ([f"  and {len(odd) - _SHOWN} more, see {REPORT}"] if len(odd) > _SHOWN else [])

    def write(self, directory: Path) -> None:
        projects = {}
        for project in sorted({*self.extracted, *(item.project for item in self.left)}):
            counts = Counter(item.kind for item in self.left if item.project == project)
            projects[project] = {EXTRACTED: self.extracted.get(project, 0), **counts}
        left = [{"project": i.project, "object": i.name, "kind": i.kind, "detail": i.detail} for i in self.left]
        document = {"version": 1, "counts": self.counts(), "projects": projects, "left_out": left}
        (directory / REPORT).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def make_report(project: str, outcomes: Iterable[Outcome], other: Iterable[tuple[str, str, str]] = ()) -> Report:
    """The report of one project; `other`: (name, kind, detail) of things for which there was no object."""
    outcomes = list(outcomes)
    left = [Left(project, o.object.path, o.kind, o.detail) for o in outcomes if o.kind != EXTRACTED]
    left += [Left(project, name, kind, detail) for name, kind, detail in other]
    return Report({project: sum(o.kind == EXTRACTED for o in outcomes)}, tuple(left))


def join_reports(reports: Iterable[Report]) -> Report:
    extracted: Counter[str] = Counter()
    left: list[Left] = []
    for report in reports:
        extracted.update(report.extracted)
        left += report.left
    return Report(dict(extracted), tuple(left))
