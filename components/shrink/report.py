"""Prints what `mlgo shrink` found, and writes it as Markdown."""

from __future__ import annotations

from pathlib import Path

from components.platform.console.escape import markdown_text
from components.platform.console.tables import make_table, table_console
from components.shrink.rows import OWN, STOCK
from components.shrink.step import COMPILERS, FILES
from components.shrink.types import FileSizes, ShrinkReport, TriedBuild

_Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Titles of the columns, and rows."""
_MAX_REASON = 60
_MAX_FILES = 20
"""Rows of the table on a terminal; shrink.json has all files."""


def print_shrunk(shrunk: ShrinkReport, output: Path) -> None:
    """Print the builds, the files, and what to put into the build."""
    console = table_console(160)
    console.print(make_table("Builds: bytes after strip, change against yours", *_builds(shrunk), left=2))
    columns, rows = _files(shrunk)
    title = f"Files of your build, and of {shrunk.chosen}: bytes after strip, machine code"
    console.print(make_table(title, columns, rows[:_MAX_FILES], left=2))
    if len(rows) > _MAX_FILES:
        console.print(f"{len(rows) - _MAX_FILES} smaller files: see shrink.json")
    for line in _conclusion(shrunk, output):
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def summary_markdown(shrunk: ShrinkReport, output: Path) -> str:
    """Return the text of summary.md."""
    text = ["# Smaller builds", "", f"Build: `{shrunk.command}`", ""]
    for columns, rows in (_builds(shrunk), _files(shrunk)):
        text += ["|" + "|".join(f" {markdown_text(column)} " for column in columns) + "|", "|---" * len(columns) + "|"]
        text += ["| " + " | ".join(markdown_text(cell) for cell in row) + " |" for row in rows] + [""]
    first, *rest = _conclusion(shrunk, output)
    text += [markdown_text(first), ""]
    return "\n".join([*text, *(["```shell", *rest, "```"] if rest else [])]) + "\n"


def _builds(shrunk: ShrinkReport) -> _Table:
    own = shrunk.builds[0]
    rows: list[tuple[str, ...]] = []
    for build in shrunk.builds:
        state = build.failure or ("delivered" if build.name == shrunk.chosen else "")
        state = state if len(state) <= _MAX_REASON else f"{state[:_MAX_REASON]}…"
        change = "" if build is own else _change(own, build)
        sizes = ("–", "–", "–") if not build.files else (f"{build.stripped:,}", f"{build.text:,}", change)
        rows.append((build.name, build.gives, *sizes, state))
    return ("build", "is", "bytes", "machine code", "change", ""), rows


def _files(shrunk: ShrinkReport) -> _Table:
    own = shrunk.builds[0]
    chosen = next(build for build in shrunk.builds if build.name == shrunk.chosen)
    rows: list[tuple[str, ...]] = []
    for name in sorted(own.files, key=lambda name: (-own.files[name].stripped, name)):
        before, after = own.files[name], chosen.files[name]
        rows.append(
            (
                name,
                shrunk.kinds[name],
                f"{before.stripped:,}",
                f"{after.stripped:,}",
                _change(before, after),
                f"{before.text:,} → {after.text:,}",
            )
        )
    return ("file", "kind", "yours", shrunk.chosen, "change", "machine code"), rows


def _change(before: FileSizes | TriedBuild, after: FileSizes | TriedBuild) -> str:
    return f"{100.0 * (after.stripped / before.stripped - 1.0):+.1f}%" if before.stripped else "–"


def _conclusion(shrunk: ShrinkReport, output: Path) -> list[str]:
    """Return the sentence of the result, and the lines for a shell."""
    own = shrunk.builds[0]
    if shrunk.chosen == OWN:
        return [f"Nothing is smaller than your own build, which is in {output / FILES}: {shrunk.why}."]
    chosen = next(build for build in shrunk.builds if build.name == shrunk.chosen)
    notes = "".join(f"Note: {note}. " for note in shrunk.notes)
    checked = f", {shrunk.check} passes" if shrunk.check else "; run its tests, no --check was given"
    return [
        f"{shrunk.reduction_percent:.1f}% smaller: {own.stripped:,} → {chosen.stripped:,} bytes after strip; the files "
        f"are in {output / FILES}, not stripped{checked}. Everything is compiled by -Oz, which may be slower: time it. "
        f"{_share_of_stock(shrunk, own, chosen)}{notes}To build it yourself in a clean tree (make clean, a new "
        f"build directory), with the compilers in {output / COMPILERS}:",
        chosen.build,
        shrunk.rebuild,
    ]


def _share_of_stock(shrunk: ShrinkReport, own: TriedBuild, chosen: TriedBuild) -> str:
    """Return the sentence that tells what the flags save from what the release clang saves; "" without a comparison."""
    stock = next((build for build in shrunk.builds if build.name == STOCK and build.files), None)
    if stock is None:
        return ""
    if stock is chosen:
        return "It is stock clang that makes the smallest files here. "
    ours = "the release clang, its policy and the search" if chosen.searched else "the release clang and its policy"
    return (
        f"Stock clang with the same flags: {_change(own, stock)} against your build; {ours}: "
        f"{_change(stock, chosen)} against that. "
    )
