"""Replayed command lines: what must stay, what must go, and that clang makes the same code of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.compiler.command_line import replay_arguments
from components.compiler.elf import Elf
from components.console import UserError
from components.formats.corpus import Corpus

BITCODE = Path("corpus/m.bc")
END = ["-emit-obj", "-x", "ir", "corpus/m.bc", "-o", "out.o"]


def replay(*recorded: str, **options) -> list[str]:
    return replay_arguments(recorded, BITCODE, "out.o", **options)


@pytest.mark.parametrize(
    "gone",
    [
        ["-fembed-bitcode=all"],
        ["-fembed-bitcode"],
        ["-dependency-file", "sub/a.d"],
        ["-MT", "sub/a.o", "-sys-header-deps", "-MP"],
        ["-split-dwarf-file", "a.dwo", "-split-dwarf-output", "a.dwo"],
        ["-opt-record-file", "a.yaml", "-opt-record-format", "yaml"],
        ["-serialize-diagnostic-file", "a.dia"],
        ["-coverage-notes-file=/b/a.gcno"],
        ["-ftime-trace=/b/a.json"],
        ["-S"],
        ["-emit-llvm-bc"],
        ["-o", "a.o"],
        ["-o", "a.o", "-x", "c++", "a.cpp"],
        ["-x", "c", "dir with space/a.c"],
        ["-flto=thin", "-flto-unit", "-fthinlto-index=/b/a.thinlto.bc"],
        ["-Werror", "-Werror=unused"],
        ["-mllvm", "-lto-embed-bitcode=post-merge-pre-opt"],
        ["-mllvm", "--lto-embed-bitcode=optimized"],
    ],
)
def test_what_writes_files_or_names_the_source_goes(gone: list[str]) -> None:
    assert replay("-cc1", "-triple", "x", "-Oz", *gone) == ["-cc1", "-triple", "x", "-Oz", *END]
    assert replay("-cc1", *gone, "-triple", "x", "-Oz") == ["-cc1", "-triple", "x", "-Oz", *END]


@pytest.mark.parametrize(
    "kept",
    [
        ["-main-file-name", "a.c"],
        ["-mllvm", "-o"],
        ["-mllvm", "-inline-threshold=3"],
        ["-fdebug-compilation-dir=/b", "-debug-info-kind=constructor"],
        ["-D", "__GCC_HAVE_DWARF2_CFI_ASM=1"],
        ["-target-feature", "+sse4.2", "-mrelocation-model", "pic", "-pic-level", "2"],
        ["-ffunction-sections", "-fdata-sections"],
    ],
)
def test_what_shapes_the_code_stays(kept: list[str]) -> None:
    assert replay("-cc1", *kept, "-Oz") == ["-cc1", *kept, "-Oz", *END]


@pytest.mark.parametrize("gone", [["-c"], ["-o", "a.o"], ["-MD", "-MF", "a.d"], ["-flto=thin"], ["-save-temps"]])
def test_without_the_leading_cc1_they_are_the_drivers(gone: list[str]) -> None:
    assert replay("-Oz", *gone, "-fPIC") == ["-c", "-Oz", "-fPIC", "-fno-crash-diagnostics", *END[1:]]


def test_extra_flags_and_thinlto() -> None:
    arguments = replay("-cc1", "-Oz", extra_flags=["-mllvm", "-x"], thinlto_index=Path("corpus/m.thinlto.bc"))
    thinlto = ["-fthinlto-index=corpus/m.thinlto.bc", "-mllvm", "-thinlto-assume-merged"]
    assert arguments == ["-cc1", "-Oz", *thinlto, "-emit-obj", "-mllvm", "-x", *END[1:]]


@pytest.mark.parametrize("recorded", [[], [""]])
def test_nothing_recorded(recorded: list[str]) -> None:
    with pytest.raises(UserError, match=r"m\.bc has no recorded"):
        replay(*recorded)


@pytest.mark.parametrize("option", ["-mllvm", "-dependency-file", "-o"])
def test_a_value_that_is_missing(option: str) -> None:
    with pytest.raises(UserError, match=f"end behind {option}"):
        replay("-cc1", "-Oz", option)


@pytest.mark.parametrize("name", ["app/tree.c", "lib/strings.cpp"])
def test_the_replayed_object_has_the_code_of_the_first_one(
    name: str, tiny_corpus: Corpus, sources: dict[str, str], clang: Path, tmp_path: Path
) -> None:
    """Bit for bit the text that clang makes of the source without any embedding."""
    (tmp_path / Path(name).name).write_text(sources[name])
    subprocess.run([clang, "-Oz", "-c", Path(name).name, "-o", "direct.o"], cwd=tmp_path, check=True)
    module = next(module for module in tiny_corpus if module.name == f"{name}.o")
    arguments = replay_arguments(module.arguments(), module.bitcode, "replayed.o")
    subprocess.run([clang, *arguments], cwd=tmp_path, check=True)
    direct, replayed = (Elf((tmp_path / f"{which}.o").read_bytes()) for which in ("direct", "replayed"))
    assert direct.section_sizes() == replayed.section_sizes()
    assert direct.section(".text") == replayed.section(".text")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([Path(name).name, "direct.o", "replayed.o"])


def test_without_an_output_code_is_made_and_not_written() -> None:
    arguments = replay_arguments(["-cc1", "-Oz", "-o", "a.o", "-emit-obj"], BITCODE, None, ["-mllvm", "-x"])
    assert arguments == ["-cc1", "-Oz", "-emit-codegen-only", "-mllvm", "-x", "-x", "ir", "corpus/m.bc"]
