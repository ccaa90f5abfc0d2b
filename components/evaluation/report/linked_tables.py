"""Formats the linked binaries of metrics.json as tables and lines for all reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET

from components.core.projects.flags.types import SectionSizes
from components.evaluation.metrics_types import FULL_LTO, BinaryEntry, KeptObjects, LinkedTotals, OwnBuild
from components.evaluation.report.formatting import change

TEXT = "text (llvm-size)"
"""Name of what sums, tables and the verdict on linked files count."""
SECTIONS = {
    "llvm_size_text": TEXT,
    "text": ".text",
    "rodata": ".rodata",
    "eh_frame": ".eh_frame",
    "gcc_except_table": ".gcc_ex…",
    "dynstr": ".dynstr",
    "data": "data",
    "other": "other",
    "total": "total",
}
"""Columns of linked binaries: attribute of SectionSizes -> title."""
PROJECT_COLUMNS = ["project", "link variant", *SECTIONS.values()]
"""Titles of `project_rows`."""
BINARY_COLUMNS = ["binary", "link variant", *SECTIONS.values()]
"""Titles of `binary_rows`."""
OWN_SECTIONS = ("llvm_size_text", "text", "eh_frame", "total")
OWN_COLUMNS = ["file", f"{TEXT}, stock", f"{TEXT}, policy", ".text, policy", ".eh_frame, policy", "stripped, policy"]
"""Titles of `own_rows`."""
MAX_BINARIES = 20
"""More binaries of a user's build have too many rows for a terminal; metrics.json has all."""
_MAX_REASONS = 5


@dataclass
class ProjectBinaries:
    """Number and sizes in sum of a project's binaries of one link variant and kind.

    Attributes:
        kind: "program", "shared library", "static library" or "object".
        stock, policy: sums over the binaries of stock clang and of the release clang with the policy.
    """

    link_variant: str
    project: str
    kind: str
    count: int
    stock: SectionSizes
    policy: SectionSizes


def binaries_by_project(binaries: Sequence[BinaryEntry]) -> list[ProjectBinaries]:
    """Sum the sizes of binaries by link variant, project and kind."""
    totals: dict[tuple[str, str, str], ProjectBinaries] = {}
    for binary in binaries:
        key = (binary.link_variant, binary.project, binary.kind)
        row = totals.setdefault(key, ProjectBinaries(*key, 0, SectionSizes(), SectionSizes()))
        row.count += 1
        row.stock += binary.stock
        row.policy += binary.policy
    return [totals[key] for key in sorted(totals)]


def select_linked(binaries: Sequence[BinaryEntry]) -> list[BinaryEntry]:
    """Return the programs and shared libraries; static libraries are not linked."""
    return [binary for binary in binaries if binary.kind in ("program", "shared library")]


def project_rows(binaries: Sequence[BinaryEntry]) -> list[list[str]]:
    """Return a row for each link variant, project and kind of its linked binaries, with bytes and change by section."""
    return [
        [f"{row.project}: {_count(row.count, row.kind)}", row.link_variant, *_cells(row.stock, row.policy)]
        for row in binaries_by_project(select_linked(binaries))
    ]


def own_rows(binaries: Sequence[BinaryEntry]) -> list[list[str]]:
    """Return a row for each of the MAX_BINARIES largest binaries of the user's own build, one for the sum of more, and
    one for the sum of all of each link variant."""
    largest = sorted(binaries, key=lambda binary: -binary.stock.llvm_size_text)
    shown, others = largest[:MAX_BINARIES], largest[MAX_BINARIES:]
    rows = [_own_row(binary.name + _marked(binary.link_variant), [binary]) for binary in shown]
    if others:
        rows.append(_own_row(f"{len(others)} more", others))
    for variant in dict.fromkeys(binary.link_variant for binary in binaries):
        chosen = [binary for binary in binaries if binary.link_variant == variant]
        rows.append(_own_row(f"all {len(chosen)}{_marked(variant)}", chosen))
    return rows


def _marked(link_variant: str) -> str:
    return f" ({FULL_LTO})" if link_variant == FULL_LTO else ""


def _own_row(title: str, binaries: Sequence[BinaryEntry]) -> list[str]:
    stock = sum((binary.stock for binary in binaries), SectionSizes())
    policy = sum((binary.policy for binary in binaries), SectionSizes())
    cells = [_cell(getattr(stock, section), getattr(policy, section)) for section in OWN_SECTIONS]
    return [title, f"{stock.llvm_size_text:,}", *cells]


def binary_rows(binaries: Sequence[BinaryEntry]) -> list[list[str]]:
    """Return a row for each linked binary, with bytes and change by section."""
    return [
        [f"{binary.project}/{binary.name}", binary.link_variant, *_cells(binary.stock, binary.policy)]
        for binary in select_linked(binaries)
    ]


def own_build_lines(own: OwnBuild, files: int) -> list[str]:
    """Return how the user's own build was linked again, or what is missing for it.

    Args:
        files: number of compared programs and shared libraries.
    """
    if own.need:
        return [f"the programs of your build are not linked: {own.need}"]
    lto = own.thin_lto + own.full_lto
    same = (
        f"{own.as_built} of {files - lto} files by stock clang have the section sizes of yours" if files > lto else ""
    )
    lines = [
        f"your own build, linked again: training compiled {own.trained_modules} of its {own.modules} modules"
        f"{'; ' if same else ''}{same}",
        *_lto_lines(own),
        f"compile time of its {own.modules} modules, without parsing{' and the link' if lto else ''}: "
        f"{own.stock_s:.1f} s by stock clang, {own.policy_s:.1f} s by the release clang",
    ]
    lines += [
        f"as you built them: {_count(kept.number, 'object')} ({_list_first(kept)}) {reason}"
        for reason, kept in own.kept.items()
    ]
    reasons = [f"not compared: {name}: {reason}" for name, reason in own.left_out.items()]
    more = len(reasons) - _MAX_REASONS
    return [*lines, *reasons[:_MAX_REASONS], *([f"not compared: {more} more files"] if more > 0 else [])]


def _lto_lines(own: OwnBuild) -> list[str]:
    """Return what figures of files that are linked with LTO mean."""
    lines = []
    if own.thin_lto or own.full_lto:
        kinds = ((own.thin_lto, "ThinLTO"), (own.full_lto, FULL_LTO))
        files = " and ".join(f"{_count(number, 'file')} with {kind}" for number, kind in kinds if number)
        lines.append(
            f"{files}, as your build's flags ask; the compilers of mlgo corpus compilers, which embed bitcode, built "
            "without"
        )
    if own.full_lto:
        lines.append(
            f"files with {FULL_LTO} do not count for the verdict: there the release clang decides by LLVM's heuristic, "
            "in a pipeline of its own"
        )
    if own.two_linkers:
        lines.append(
            f"{_count(own.two_linkers, 'file')} with LTO but without -fuse-ld: GNU ld links by stock clang, lld by the "
            "release clang, and the figures contain this; -fuse-ld=lld makes it one linker"
        )
    return lines


def _list_first(kept: KeptObjects) -> str:
    shown = kept.names[:_MAX_REASONS]
    more = kept.number - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def list_variants(binary: BinaryEntry) -> list[tuple[str, SectionSizes]]:
    """Return (kind of the file and what it was built with, sizes) for the policy and, if there is one, for the plan."""
    if binary.plan is UNSET:
        return [(binary.kind, binary.policy)]
    return [
        (f"{binary.kind}, policy without plan", binary.policy),
        (f"{binary.kind}, policy and plan", binary.plan.sizes),
    ]


def linked_lines(linked: LinkedTotals) -> list[str]:
    """Return a line for each link variant and language: the reduction of its programs and shared libraries in sum.
    Where a plan was compared, a second line has its reduction, also against the policy without the plan."""
    titles = {"all": "all", "c": "C", "c++": "C++"}
    lines = []
    for variant, languages in linked.items():
        for language, total in sorted(languages.items()):
            if language != "all" and total.files == languages["all"].files:
                continue  # the same line again
            subject = f"linked, {variant}, {titles.get(language, language)} ({total.files})"
            alone = "" if total.plan is UNSET else ", policy without plan"
            lines.append(
                f"{subject}{alone}: {TEXT} {change(total.reduction_percent)}, "
                f".text alone {change(total.text_reduction_percent)}"
            )
            if total.policy_part_percent is not UNSET:
                lines.append(
                    f"{subject}, the policy's own part: {change(total.policy_part_percent)} than the same clang and "
                    "options by LLVM's heuristic; the rest is the release clang's outliner"
                )
            if total.plan is not UNSET:
                lines.append(
                    f"{subject}, policy and plan: {TEXT} {change(total.plan.reduction_percent)}, "
                    f".text alone {change(total.plan.text_reduction_percent)}; "
                    f"against the policy without plan {change(total.plan.against_policy_percent)}"
                )
    return lines


def _cells(stock: SectionSizes, policy: SectionSizes) -> list[str]:
    return [_cell(getattr(stock, section), getattr(policy, section)) for section in SECTIONS]


def _cell(stock: int, policy: int) -> str:
    return f"{policy:,} {100 * (policy / stock - 1):+.2f}%" if stock else f"{policy:,}"


def _count(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
