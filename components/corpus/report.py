"""report.json of a corpus: number of extracted objects, and the skipped objects with the reasons, by project."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from components.core.formats.corpus import REPORT
from components.corpus.extraction.outcome import Outcome
from components.corpus.outcome_kind import OutcomeKind
from components.platform.storage.manifest import list_names

_MAX_EXAMPLES = 5
_EXPECTED = (
    OutcomeKind.ASSEMBLY,
    OutcomeKind.FILTERED,
    OutcomeKind.DUPLICATE,
    OutcomeKind.NO_FUNCTIONS,
    OutcomeKind.REMOVED,
)
_LABELS: dict[str, str] = {kind: kind.label for kind in OutcomeKind}


@dataclass(frozen=True)
class Skipped:
    """An object or source that is not in the corpus.

    Attributes:
        name: name of the object, source or package.
        detail: the reason, for the user.
    """

    project: str
    name: str
    kind: str
    detail: str


@dataclass(frozen=True)
class CorpusReport:
    """Outcome of every object.

    Attributes:
        extracted: project -> number of modules.
        skipped: all objects that were not extracted.
        shared_functions: project -> number of functions that several of its programs have, and of all; for a corpus of
            programs.
    """

    extracted: dict[str, int]
    skipped: tuple[Skipped, ...]
    shared_functions: dict[str, tuple[int, int]] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """Return the number of objects of each kind."""
        counts: Counter[str] = Counter({OutcomeKind.EXTRACTED: sum(self.extracted.values())})
        counts.update(item.kind for item in self.skipped)
        return dict(counts)

    def line(self) -> str:
        """Return a one-line summary for the user: "540 extracted, 3 made from assembly, 71 not built"."""
        counts = self.counts()
        # Last: a user builds some targets of many.
        kinds = sorted(counts, key=lambda kind: kind == OutcomeKind.MISSING)
        return ", ".join(f"{counts[kind]} {_LABELS.get(kind, kind)}" for kind in kinds)

    def examples(self, written: str = "") -> list[str]:
        """Return a few lines about skipped objects that the user would expect in the corpus: one for each reason.

        Objects that were not built, and commands that compile nothing, are among them only if nothing was extracted.

        Args:
            written: where report.json is, to refer to; "" if it is not written.
        """
        expected = (
            (*_EXPECTED, OutcomeKind.MISSING, OutcomeKind.NOT_A_COMPILE) if any(self.extracted.values()) else _EXPECTED
        )
        unexpected = [item for item in self.skipped if item.kind not in expected]
        unexpected.sort(key=lambda item: item.kind == OutcomeKind.MISSING)
        by_reason: dict[tuple[str, str], list[str]] = {}
        for item in unexpected:
            by_reason.setdefault((item.kind, item.detail), []).append(item.name)
        shown = list(by_reason.items())[:_MAX_EXAMPLES]
        lines = [f"  {_LABELS.get(kind, kind)}: {list_names(names)}: {detail}" for (kind, detail), names in shown]
        if more := len(unexpected) - sum(len(names) for _reason, names in shown):
            lines.append(f"  and {more} more")
        if written and len(unexpected) > _MAX_EXAMPLES:
            lines.append(f"  all of them: {written}")
        return lines

    def write(self, directory: Path) -> None:
        """Write report.json to `directory`."""
        projects = {}
        for project in sorted({*self.extracted, *(item.project for item in self.skipped)}):
            counts = Counter(item.kind for item in self.skipped if item.project == project)
            projects[project] = {OutcomeKind.EXTRACTED: self.extracted.get(project, 0), **counts}
        skipped = [{"project": i.project, "object": i.name, "kind": i.kind, "detail": i.detail} for i in self.skipped]
        document = {"version": 1, "counts": self.counts(), "projects": projects, "left_out": skipped}
        if self.shared_functions:
            document["shared_functions"] = {
                project: {"in_several_programs": several, "all": number}
                for project, (several, number) in sorted(self.shared_functions.items())
            }
        (directory / REPORT).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def make_report(
    project: str,
    outcomes: Iterable[Outcome],
    other: Iterable[tuple[str, str, str]] = (),
    shared_functions: tuple[int, int] | None = None,
) -> CorpusReport:
    """Return the report of one project.

    Args:
        other: (name, kind, detail) of skipped entries that have no object.
        shared_functions: of programs: how many functions several of them have, and how many there are.
    """
    outcomes = list(outcomes)
    skipped = [Skipped(project, o.object.path, o.kind, o.detail) for o in outcomes if o.kind != OutcomeKind.EXTRACTED]
    skipped += [Skipped(project, name, kind, detail) for name, kind, detail in other]
    shared = {} if shared_functions is None else {project: shared_functions}
    return CorpusReport({project: sum(o.kind == OutcomeKind.EXTRACTED for o in outcomes)}, tuple(skipped), shared)


def join_reports(reports: Iterable[CorpusReport]) -> CorpusReport:
    """Merge the reports of several projects into one."""
    extracted: Counter[str] = Counter()
    skipped: list[Skipped] = []
    shared_functions: dict[str, tuple[int, int]] = {}
    for report in reports:
        extracted.update(report.extracted)
        skipped += report.skipped
        shared_functions.update(report.shared_functions)
    return CorpusReport(dict(extracted), tuple(skipped), shared_functions)
