"""Prints a forecast."""

from __future__ import annotations

from components.core.formats.links import LinksSource
from components.forecast.types import Change, FileForecast, Forecast, ObjectsForecast, percent_text
from components.platform.console.tables import make_table, print_lines, table_console

_LANGUAGES = {"c": "C", "c++": "C++", "other": "other languages"}
_MAX_FAILED = 3
_MAX_FILES = 12
_SOURCES: dict[LinksSource, str] = {
    "recorded": "as its compilers recorded",
    "ninja": "as ninja links",
    "CMake": "as its Makefiles link",
}
_COLUMNS = ("", "stock", "policy", "change", "release clang", "change")


def print_forecast(forecast: Forecast) -> None:
    console = table_console(120)
    print_lines(console, _introduction(forecast))
    title = "Bytes at -Oz by stock clang, by the release clang's policy alone, and by the release clang"
    rows = [_row(f"text of the objects{of}", sizes.text) for of, sizes in _parts(forecast)]
    rows += [
        _row("  its machine code", forecast.objects.machine_code),
        _row("  its unwind tables", forecast.objects.unwind),
    ]
    if linked := forecast.linked:
        rows += [
            _row("linked files" if forecast.files else "linked together", linked.bytes),
            _row("  its machine code", linked.machine_code),
            _row("  its unwind tables", linked.unwind),
            _row("  its names for the dynamic linker", linked.names),
        ]
    rows += [_row(_file_name(file), file.bytes) for file in forecast.files[:_MAX_FILES]]
    console.print(make_table(title, _COLUMNS, rows))
    more = len(forecast.files) - _MAX_FILES
    print_lines(console, [*([f"and {more} smaller files: --json has them"] if more > 0 else []), *forecast.advice])


def _introduction(forecast: Forecast) -> list[str]:
    sizes = forecast.objects
    compiled = f"all {sizes.modules}" if sizes.modules == forecast.modules else f"{sizes.modules} of {forecast.modules}"
    languages = ", ".join(f"{_LANGUAGES[name]} {part.modules}" for name, part in forecast.languages.items())
    lines = [
        f"{compiled} modules compiled in {forecast.compile_s:.0f} s ({languages}), {forecast.functions:,} functions"
    ]
    for name, problem in list(forecast.failed.items())[:_MAX_FAILED]:
        lines.append(f"does not compile: {name}: {problem}")
    if len(forecast.failed) > _MAX_FAILED:
        lines.append(f"and {len(forecast.failed) - _MAX_FAILED} more modules that do not compile")
    lines.append(
        f"discardable functions: {forecast.discardable_percent:.0f}% of the text; "
        f"unwind tables: {forecast.unwind_percent:.0f}%"
    )
    if forecast.decisions:
        share = 100 * forecast.departures / forecast.decisions
        lines.append(f"decisions of the policy: {forecast.decisions:,}, {share:.0f}% unlike LLVM's heuristic")
    if forecast.not_linked:
        lines.append(f"warning: cannot link {'' if forecast.linked else 'the objects: '}{forecast.not_linked}")
    if forecast.files:
        others = f"; {forecast.unlinked} modules are in none and do not count" if forecast.unlinked else ""
        lines.append(f"linked files of the build, {_SOURCES[forecast.links]}: {len(forecast.files)}{others}")
    elif forecast.linked:
        lines.append(
            "links of the build are unknown: its modules are linked as one program, those for libraries as one"
        )
    return lines


def _file_name(file: FileForecast) -> str:
    of = "" if file.compiled == file.modules else f", {file.compiled} of {file.modules} modules"
    return f"  {file.name}{of}"


def _parts(forecast: Forecast) -> list[tuple[str, ObjectsForecast]]:
    parts = forecast.languages
    by_language = [(f", {_LANGUAGES[name]}", part) for name, part in parts.items()] if len(parts) > 1 else []
    return [*by_language, ("", forecast.objects)]


def _row(name: str, change: Change) -> tuple[str, ...]:
    by_policy, by_release = percent_text(change.policy_percent), percent_text(change.percent)
    return name, f"{change.stock:,}", f"{change.policy:,}", by_policy, f"{change.release:,}", by_release
