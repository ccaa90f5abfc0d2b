"""The files that links read."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.formats.links import Link
from components.core.projects.build_links.driver import lto_of
from components.core.projects.build_links.inputs import input_paths


def inputs(directory: Path, *words: str) -> list[str]:
    """Return `input_paths` of a link in a directory, relative to it."""
    link = Link(str(directory), False, (*words, "-o", "program"), str(directory / "program"))
    return [str(Path(path).relative_to(directory)) for path in input_paths(link)]


def files(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()


def test_inputs_are_files_in_all_forms_of_arguments(tmp_path: Path) -> None:
    files(tmp_path, "a.o", "b.a", "c.a", "lib/libd.so", "lib/libe.a", "more/exact.a", "x.ver", "program", "main")
    words = (
        *("a.o", "-Wl,--whole-archive,b.a,--no-whole-archive", "-Xlinker", "c.a", "-Llib", "-ld", "-L", "more"),
        *("-le", "-l:exact.a", "-Wl,--version-script=x.ver", "-u", "main", "-lm", "missing.o"),
    )
    assert inputs(tmp_path, *words) == ["a.o", "b.a", "c.a", "lib/libd.so", "lib/libe.a", "more/exact.a"]


def test_option_x_takes_a_value_as_the_drivers_alone(tmp_path: Path) -> None:
    files(tmp_path, "a.o", "b.o", "c")
    assert inputs(tmp_path, "-Wl,-x", "a.o", "-x", "c", "-Wl,-soname,c", "-Wl,-x,b.o") == ["a.o", "b.o"]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (("-ld",), "lib/libd.so"),
        (("-static", "-ld"), "lib/libd.a"),
        (("-Wl,-Bstatic", "-ld", "-Wl,-Bdynamic"), "lib/libd.a"),
        (("-Wl,-Bstatic,-Bdynamic", "-ld"), "lib/libd.so"),
    ],
)
def test_library_is_the_one_that_the_linker_takes(tmp_path: Path, words: tuple[str, ...], chosen: str) -> None:
    files(tmp_path, "lib/libd.a", "lib/libd.so", "more/libd.a", "more/libd.so")
    assert inputs(tmp_path, "-Llib", "-Lmore", *words) == [chosen]


@pytest.mark.parametrize(
    ("words", "lto"),
    [
        ((), None),
        (("-flto",), "full"),
        (("-flto=auto",), "full"),
        (("-flto=thin", "-O2"), "thin"),
        (("-flto=thin", "-flto"), "full"),
        (("-flto", "-fno-lto"), None),
        (("-fno-lto", "-flto=thin"), "thin"),
    ],
)
def test_last_option_of_lto_counts(words: tuple[str, ...], lto: str | None) -> None:
    assert lto_of(words) == lto
