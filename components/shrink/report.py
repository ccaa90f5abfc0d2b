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
_MAX_REASON = 100
_MAX_FILES = 20
"""Rows of the table on a terminal; shrink.json has all files."""


def print_shrunk(shrunk: ShrinkReport, output: Path) -> None:
    """Print the builds, the files, and what to put into the build."""
    console = table_console(160)
    console.print(_headline(shrunk), highlight=False, soft_wrap=True, markup=False)
    title = "Builds: bytes after llvm-strip, bytes that are loaded, change against yours"
    console.print(make_table(title, *_builds(shrunk), left=2))
    columns, rows = _files(shrunk)
    title = f"Files of your build, and of {shrunk.chosen}: bytes after llvm-strip, bytes loaded, machine code"
    console.print(make_table(title, columns, rows[:_MAX_FILES], left=2))
    if len(rows) > _MAX_FILES:
        console.print(f"{len(rows) - _MAX_FILES} smaller files: see shrink.json")
    sentences, commands = _conclusion(shrunk, output)
    for line in [*sentences, *commands]:
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def summary_markdown(shrunk: ShrinkReport, output: Path) -> str:
    """Return the text of summary.md."""
    text = ["# Smaller builds", "", markdown_text(_headline(shrunk)), "", f"Build: `{shrunk.command}`", ""]
    for columns, rows in (_builds(shrunk), _files(shrunk)):
        text += ["|" + "|".join(f" {markdown_text(column)} " for column in columns) + "|", "|---" * len(columns) + "|"]
        text += ["| " + " | ".join(markdown_text(cell) for cell in row) + " |" for row in rows] + [""]
    sentences, commands = _conclusion(shrunk, output)
    for sentence in sentences:
        text += [markdown_text(sentence), ""]
    return "\n".join([*text, *(["```shell", *commands, "```"] if commands else [])]) + "\n"


def _headline(shrunk: ShrinkReport) -> str:
    """Return the result in a line: how much smaller, and how the delivered files were checked."""
    own = shrunk.builds[0]
    if shrunk.chosen == OWN:
        return f"Nothing is smaller than your own build, {own.stripped:,} bytes after strip."
    chosen = next(build for build in shrunk.builds if build.name == shrunk.chosen)
    return (
        f"{shrunk.reduction_percent:.1f}% smaller: {own.stripped:,} → {chosen.stripped:,} bytes after strip; "
        f"{shrunk.checked}."
    )


def _builds(shrunk: ShrinkReport) -> _Table:
    own = shrunk.builds[0]
    rows: list[tuple[str, ...]] = []
    for build in shrunk.builds:
        state = build.failure or ("delivered" if build.name == shrunk.chosen else "")
        state = state if len(state) <= _MAX_REASON else f"{state[:_MAX_REASON]}…"
        sizes: tuple[str, ...] = ("–",) * 5
        if build.files:
            changes = ("", "") if build is own else (_change(own, build), _loaded_change(own, build))
            sizes = (f"{build.stripped:,}", changes[0], f"{build.loaded:,}", changes[1], f"{build.text:,}")
        rows.append((build.name, build.gives, *sizes, state))
    return ("build", "is", "bytes", "change", "loaded", "change", "machine code", ""), rows


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
                f"{before.loaded:,} → {after.loaded:,}",
                f"{before.text:,} → {after.text:,}",
            )
        )
    return ("file", "kind", "yours", shrunk.chosen, "change", "loaded", "machine code"), rows


def _change(before: FileSizes | TriedBuild, after: FileSizes | TriedBuild) -> str:
    return f"{100.0 * (after.stripped / before.stripped - 1.0):+.1f}%" if before.stripped else "–"


def _loaded_change(before: FileSizes | TriedBuild, after: FileSizes | TriedBuild) -> str:
    return f"{100.0 * (after.loaded / before.loaded - 1.0):+.1f}%" if before.loaded else "–"


def _conclusion(shrunk: ShrinkReport, output: Path) -> tuple[list[str], list[str]]:
    """Return sentences on the result, and the lines for a shell."""
    own = shrunk.builds[0]
    if shrunk.chosen == OWN:
        return [f"Your own build is delivered, in {output / FILES}: {shrunk.why}."], []
    chosen = next(build for build in shrunk.builds if build.name == shrunk.chosen)
    sentences = [
        f"The files are in {output / FILES}, not stripped. All code is compiled by -Oz, which may be slower: time it.",
        _loaded_sentence(own, chosen),
        _share_of_stock(shrunk, own, chosen),
        *(f"Note: {note}." for note in shrunk.notes),
        "To build it yourself in a clean tree (make clean, a new build directory), with the compilers in "
        f"{output / COMPILERS}:",
    ]
    return [sentence for sentence in sentences if sentence], [chosen.build, shrunk.rebuild]


def _loaded_sentence(own: TriedBuild, chosen: TriedBuild) -> str:
    """Return how much the code and data shrink, and how much the layout of the files; "" for static libraries."""
    if own.stripped == own.loaded:
        return ""
    loaded = f"Sections that are loaded: {own.loaded:,} → {chosen.loaded:,} bytes, {_loaded_change(own, chosen)}."
    layout = (own.stripped - own.loaded) - (chosen.stripped - chosen.loaded)
    if layout <= 0:
        return loaded
    padding = "the layout of the files, mostly padding that GNU ld writes and lld does not"
    return f"{loaded} The other {layout:,} bytes are {padding}."


def _share_of_stock(shrunk: ShrinkReport, own: TriedBuild, chosen: TriedBuild) -> str:
    """Return the sentence that tells what the flags save from what the release clang saves; "" without a comparison."""
    stock = next((build for build in shrunk.builds if build.name == STOCK and build.files), None)
    if stock is None:
        return ""
    if stock is chosen:
        return "It is stock clang that makes the smallest files here."
    ours = "the release clang, its policy and the search" if chosen.searched else "the release clang and its policy"
    return (
        f"Stock clang with the same flags: {_change(own, stock)} against your build; {ours}: "
        f"{_change(stock, chosen)} against that."
    )
