"""Prints what `mlgo shrink` found, and writes it as Markdown."""

from __future__ import annotations

from pathlib import Path

from components.platform.console.escape import markdown_text
from components.platform.console.tables import make_table, print_lines, table_console
from components.shrink.rows import OWN, STOCK
from components.shrink.speed.benchmark import describe_speed
from components.shrink.step import FILES
from components.shrink.trials import COMPILERS
from components.shrink.types import TITLE_OF_MEASURE, FileSizes, Measure, ShrinkReport, TriedBuild

_Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Titles of the columns, and rows."""
_COMPILERS = {"policy": "the release clang", "stock": "stock clang", "gcc": "gcc", "newest": "the newest clang"}
_COMPILERS["plan"] = _COMPILERS["heuristic"] = _COMPILERS["policy"]
_NOT_TIMED = " All code is compiled for size, and may be slower: pass --benchmark COMMAND."
_MAX_REASON = 100
_MAX_FILES = 20
"""Rows of the table on a terminal; shrink.json has all files."""


def print_shrunk(shrunk: ShrinkReport, output: Path) -> None:
    console = table_console(160)
    print_lines(console, [_headline(shrunk)])
    title = f"Builds: bytes {TITLE_OF_MEASURE[shrunk.measure]}, change against yours"
    console.print(make_table(title, *_builds(shrunk), left=2))
    columns, rows = _files(shrunk)
    title = f"Files of your build, and of {shrunk.chosen}: bytes {TITLE_OF_MEASURE[shrunk.measure]}"
    console.print(make_table(title, columns, rows[:_MAX_FILES], left=2))
    if len(rows) > _MAX_FILES:
        console.print(f"{len(rows) - _MAX_FILES} smaller files: see shrink.json")
    sentences, commands = _conclusion(shrunk, output)
    print_lines(console, [*sentences, *commands])


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
    """Return the result in a line: how much smaller, how the delivered files were checked, and what others give."""
    own = shrunk.builds[0]
    title = TITLE_OF_MEASURE[shrunk.measure]
    if shrunk.chosen == OWN:
        limit = "" if shrunk.max_slowdown is None else f" within --max-slowdown {shrunk.max_slowdown:g}"
        return f"Nothing{limit} is smaller than your own build, {own.by(shrunk.measure):,} bytes {title}."
    chosen = next(build for build in shrunk.builds if build.name == shrunk.chosen)
    others = [f"{name} {_change(shrunk, own, build)}" for name, build in _rivals(shrunk) if build is not chosen]
    limit = "" if shrunk.max_slowdown is None else f" (limit {shrunk.max_slowdown:+g}% instructions)"
    speed = f"; {describe_speed(shrunk.speed)}{limit}" if shrunk.speed else ""
    return (
        f"{shrunk.reduction_percent:.1f}% smaller, {own.by(shrunk.measure):,} → {chosen.by(shrunk.measure):,} bytes "
        f"{title} by {chosen.name}; {shrunk.checked}{speed}{'; ' if others else ''}{', '.join(others)}."
    )


def _rivals(shrunk: ShrinkReport) -> list[tuple[str, TriedBuild]]:
    """Return the smallest build of each compiler but the user's own build."""
    rivals: dict[str, TriedBuild] = {}
    for build in shrunk.builds[1:]:
        if build.files and not build.failure:
            name = _COMPILERS.get(build.compiler, build.compiler)
            rivals[name] = min(rivals.get(name, build), build, key=lambda one: one.by(shrunk.measure))
    return list(rivals.items())


def _builds(shrunk: ShrinkReport) -> _Table:
    own = shrunk.builds[0]
    other: Measure = "loaded" if shrunk.measure == "file" else "file"
    rows: list[tuple[str, ...]] = []
    for build in shrunk.builds:
        counted = f"{100 * (build.instructions / own.instructions - 1):+.1f}%" if build.instructions else "–"
        state = build.failure or ("delivered" if build.name == shrunk.chosen else "")
        state = state if len(state) <= _MAX_REASON else f"{state[:_MAX_REASON]}…"
        sizes: tuple[str, ...] = ("–",) * 4
        if build.files:
            change = "" if build is own else _change(shrunk, own, build)
            sizes = (f"{build.by(shrunk.measure):,}", change, f"{build.by(other):,}", f"{build.text:,}")
        rows.append((build.name, build.gives, *sizes, *([counted] if own.instructions else []), state))
    measured, more = TITLE_OF_MEASURE[shrunk.measure], TITLE_OF_MEASURE[other]
    instructions = ["instructions"] if own.instructions else []
    return ("build", "is", measured, "change", more, "machine code", *instructions, ""), rows


def _files(shrunk: ShrinkReport) -> _Table:
    own = shrunk.builds[0]
    chosen = next(build for build in shrunk.builds if build.name == shrunk.chosen)
    rows: list[tuple[str, ...]] = []
    for name in sorted(own.files, key=lambda name: (-own.files[name].by(shrunk.measure), name)):
        before, after = own.files[name], chosen.files[name]
        measured = (f"{before.by(shrunk.measure):,}", f"{after.by(shrunk.measure):,}", _change(shrunk, before, after))
        others = (f"{before.stripped:,} → {after.stripped:,}", f"{before.text:,} → {after.text:,}")
        rows.append((name, shrunk.kinds[name], *measured, *others))
    return ("file", "kind", "yours", shrunk.chosen, "change", "after strip", "machine code"), rows


def _change(shrunk: ShrinkReport, before: FileSizes, after: FileSizes) -> str:
    one, other = before.by(shrunk.measure), after.by(shrunk.measure)
    return f"{100.0 * (other / one - 1.0):+.1f}%" if one else "–"


def _conclusion(shrunk: ShrinkReport, output: Path) -> tuple[list[str], list[str]]:
    """Return sentences on the result, and the lines for a shell."""
    own = shrunk.builds[0]
    if shrunk.chosen == OWN:
        return [f"Your own build is delivered, in {output / FILES}: {shrunk.why}."], []
    chosen = next(build for build in shrunk.builds if build.name == shrunk.chosen)
    sentences = [
        f"The files are in {output / FILES}, not stripped.{'' if shrunk.speed else _NOT_TIMED}",
        _loaded_sentence(own, chosen),
        _share_of_stock(shrunk, own),
        *(f"Note: {note}." for note in shrunk.notes),
        "To build it yourself in a clean tree (make clean, a new build directory), with the compilers in "
        f"{output / COMPILERS}:",
    ]
    return [sentence for sentence in sentences if sentence], [chosen.build, shrunk.rebuild]


def _loaded_sentence(own: TriedBuild, chosen: TriedBuild) -> str:
    """Return how much the files shrink, and how much of it is their layout; "" for static libraries."""
    if own.stripped == own.loaded:
        return ""
    files = f"The files after strip: {own.stripped:,} → {chosen.stripped:,} bytes, "
    files += f"{100.0 * (chosen.stripped / own.stripped - 1.0):+.1f}%"
    layout = (own.stripped - own.loaded) - (chosen.stripped - chosen.loaded)
    if layout <= 0:
        return f"{files}."
    return f"{files}, of which {layout:,} are their layout, mostly padding that GNU ld writes and lld does not."


def _share_of_stock(shrunk: ShrinkReport, own: TriedBuild) -> str:
    """Return the sentence that tells what the flags save from what the release clang saves; "" without a comparison."""
    stock = next((build for build in shrunk.builds if build.name == STOCK and build.files), None)
    ours = dict(_rivals(shrunk)).get(_COMPILERS["policy"])
    if stock is None or ours is None:
        return ""
    searched = any(build.searched and build.files for build in shrunk.builds)
    by = f"the release clang{', its policy and the search' if searched else ' and its policy'}"
    return (
        f"Stock clang with the flags of {ours.name}: {_change(shrunk, own, stock)} against your build; {by}: "
        f"{_change(shrunk, stock, ours)} against that."
    )
