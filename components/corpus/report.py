"""report.json of a corpus: number of extracted objects, and the skipped objects with the reasons, by project."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from components.core.formats.corpus import REPORT
from components.corpus.extraction.outcome import (
    DUPLICATE,
    EXTRACTED,
    FAILED,
    INSTRUMENTED,
    LINKED,
    MISSING,
    NEWER_LLVM,
    NO_INDEX,
    NOT_LINKED,
    NOT_RESTORED,
    OTHER_COMPILER,
    RELOCATABLE,
    REMOVED,
    Outcome,
)
from components.corpus.sources.objects import NO_OUTPUT, NOT_A_COMPILE, OUTSIDE
from components.platform.storage.manifest import list_names

NOT_AN_OBJECT = "not_an_object"
COMPILE_FAILED = "compile_failed"
DAMAGED = "damaged"
NO_FUNCTIONS = "no_functions"
PACKAGE_FAILED = "package_failed"
_MAX_EXAMPLES = 5
_EXPECTED = ("assembly", "filtered", DUPLICATE, NO_FUNCTIONS, REMOVED)
_LABELS = {
    EXTRACTED: "extracted",
    "assembly": "made from assembly",
    "no_bitcode": "without bitcode",
    MISSING: "not built",
    OTHER_COMPILER: "from another compiler",
    LINKED: "linked in one command",
    "filtered": "filtered out",
    FAILED: "unreadable",
    NO_OUTPUT: "commands that make no object",
    NOT_A_COMPILE: "other commands",
    COMPILE_FAILED: "failed to compile",
    NO_INDEX: "without a ThinLTO index",
    OUTSIDE: "outside of the base directory",
    NOT_AN_OBJECT: "neither objects nor archives",
    INSTRUMENTED: "left out because a replay would not be the same code",
    NEWER_LLVM: "from a newer LLVM",
    NOT_LINKED: "not linked",
    RELOCATABLE: "relocatable links of native code",
    REMOVED: "whose linked file no longer exists",
    NOT_RESTORED: "left out because a replay would drop functions",
    DAMAGED: "damaged",
    DUPLICATE: "equal to others",
    NO_FUNCTIONS: "without functions",
    PACKAGE_FAILED: "packages left out",
}


@dataclass(frozen=True)
class Skipped:
    """An object or source that is not in the corpus.

    Attributes:
        project: its project.
        name: name of the object, source or package.
        kind: one of the constants above or in outcome.py.
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
        counts = Counter({EXTRACTED: sum(self.extracted.values())})
        counts.update(item.kind for item in self.skipped)
        return dict(counts)

    def line(self) -> str:
        """Return a one-line summary for the user: "540 extracted, 3 made from assembly, 71 not built"."""
        counts = self.counts()
        # Last: a user builds some targets of many.
        kinds = sorted(counts, key=lambda kind: kind == MISSING)
        return ", ".join(f"{counts[kind]} {_LABELS.get(kind, kind)}" for kind in kinds)

    def examples(self, written: str = "") -> list[str]:
        """Return a few lines about skipped objects that the user would expect in the corpus: one for each reason.

        Objects that were not built, and commands that compile nothing, are among them only if nothing was extracted.

        Args:
            written: where report.json is, to refer to; "" if it is not written.
        """
        expected = (*_EXPECTED, MISSING, NOT_A_COMPILE) if any(self.extracted.values()) else _EXPECTED
        unexpected = [item for item in self.skipped if item.kind not in expected]
        unexpected.sort(key=lambda item: item.kind == MISSING)
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
            projects[project] = {EXTRACTED: self.extracted.get(project, 0), **counts}
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
        project: name of the project.
        outcomes: of its objects.
        other: (name, kind, detail) of skipped entries that have no object.
        shared_functions: of programs: how many functions several of them have, and how many there are.
    """
    outcomes = list(outcomes)
    skipped = [Skipped(project, o.object.path, o.kind, o.detail) for o in outcomes if o.kind != EXTRACTED]
    skipped += [Skipped(project, name, kind, detail) for name, kind, detail in other]
    shared = {} if shared_functions is None else {project: shared_functions}
    return CorpusReport({project: sum(o.kind == EXTRACTED for o in outcomes)}, tuple(skipped), shared)


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
