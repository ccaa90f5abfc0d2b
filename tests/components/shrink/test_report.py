"""What `mlgo shrink` says about sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from components.shrink.report import print_shrunk, summary_markdown
from components.shrink.types import FileSizes, ShrinkReport, TriedBuild


def build(name: str, stripped: int, loaded: int, failure: str = "") -> TriedBuild:
    sizes = FileSizes(stripped=stripped, loaded=loaded, text=loaded // 2)
    shell = "" if name == "own" else "export CC=clang"
    return TriedBuild(name=name, gives="flags", build=shell, files={"app": sizes}, failure=failure, **asdict(sizes))


def report(*builds: TriedBuild, chosen: str, **more: Any) -> ShrinkReport:
    return ShrinkReport(
        command="make",
        rebuild="make",
        check="",
        chosen=chosen,
        reduction_percent=40.0,
        kinds={"app": "program"},
        builds=list(builds),
        checked="make check passes",
        measure="loaded",
        **more,
    )


def test_layout_of_files_is_told_from_code() -> None:
    shrunk = report(build("own", 20_000, 12_000), build("program", 12_000, 10_800), chosen="program")
    text = summary_markdown(shrunk, Path("out")).replace("\\", "")
    first = "40.0% smaller, 12,000 → 10,800 bytes loaded by program; make check passes."
    assert text.splitlines()[2] == first
    assert "20,000" in text
    assert "| program | flags | 10,800 | -10.0% | 12,000 | 5,400 | delivered |" in text


def test_layout_that_does_not_shrink_and_the_one_size_of_static_libraries_are_not_mentioned() -> None:
    shrunk = report(build("own", 20_000, 18_000), build("program", 12_000, 10_000), chosen="program")
    text = summary_markdown(shrunk, Path("out"))
    assert "18,000 → 10,000 bytes loaded" in text and "layout" not in text
    shrunk = report(build("own", 2_000, 2_000), build("objects", 1_200, 1_200), chosen="objects")
    assert "The files after strip" not in summary_markdown(shrunk, Path("out"))


def test_first_line_has_the_best_of_each_compiler() -> None:
    builds = [build("own", 200, 100), build("program", 90, 80), build("gcc-Os", 99, 75), build("gcc-Oz", 80, 70)]
    for one, compiler in zip(builds[1:], ("policy", "gcc", "gcc"), strict=True):
        one.compiler = compiler
    first = summary_markdown(report(*builds, chosen="gcc-Oz"), Path("out")).replace("\\", "").splitlines()[2]
    assert first.endswith("100 → 70 bytes loaded by gcc-Oz; make check passes; the release clang -20.0%.")


def test_notes_have_a_paragraph_each() -> None:
    shrunk = report(build("own", 9, 8), build("program", 7, 6), chosen="program", notes=["one", "two"])
    text = summary_markdown(shrunk, Path("out"))
    assert "\n\nNote: one.\n\nNote: two.\n\n" in text and text.endswith("```shell\nexport CC=clang\nmake\n```\n")


def test_own_build_is_delivered_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    failed = build("program", 7, 6, failure="the check, false, ends with status 1")
    shrunk = report(build("own", 9, 8), failed, chosen="own", why="no other build can be used")
    assert "out/files" in summary_markdown(shrunk, Path("out"))
    print_shrunk(shrunk, Path("out"))
    assert "status 1" in capsys.readouterr().out
