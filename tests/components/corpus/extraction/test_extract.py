"""Extraction writes the same files as mlgo-utils' extract_ir, byte for byte, and reports skipped objects."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.core.formats.corpus import write_description
from components.corpus.extraction.extract import ExtractConfig, extract_objects
from components.corpus.extraction.outcome import Outcome
from components.corpus.sources.objects import ObjectFile, read_compile_commands
from components.platform.errors import UserError
from tests.components.corpus.mlgo_utils import OBJCOPY, extract_ir, files


def extract(build: Path, output: Path, config: ExtractConfig = ExtractConfig()) -> list[Outcome]:  # noqa: B008
    objects, _ = read_compile_commands(build / "compile_commands.json")
    outcomes = extract_objects(objects, output, config)
    write_description(output, [outcome.object.name for outcome in outcomes if outcome.kind == "extracted"])
    return outcomes


@pytest.mark.parametrize(
    # mlgo-utils treats the bytes after the last NUL as an argument, which is empty.
    "cmd_filter",
    [None, "^-O2$", "^-O[2z]$", "^$", "no such flag"],
)
def test_extracted_files_equal_those_of_mlgo_utils(build: Path, tmp_path: Path, cmd_filter: str | None) -> None:
    (tmp_path / "ours").mkdir()
    extract(build, tmp_path / "ours", ExtractConfig(cmd_filter=cmd_filter, num_workers=3))
    flags = ["--cmd-filter", cmd_filter] if cmd_filter else []
    extract_ir(tmp_path / "theirs", "--input", build / "compile_commands.json", *flags)
    theirs = files(tmp_path / "theirs")
    assert files(tmp_path / "ours") == theirs
    assert "corpus_description.json" in theirs


def test_every_object_has_an_outcome(build: Path, tmp_path: Path) -> None:
    kinds = {Path(outcome.object.name).name: outcome.kind for outcome in extract(build, tmp_path)}
    assert kinds == {
        "one.c.o": "extracted",
        "two.cc.o": "extracted",
        "three.c.o": "extracted",
        "plain.c.o": "no_bitcode",
        "fast.S.o": "assembly",
        "broken.c.o": "failed",
        "empty.c.o": "failed",
        "unbuilt.c.o": "missing",
    }


def test_filtered_modules_are_distinguished_from_missing_ones(build: Path, tmp_path: Path) -> None:
    outcomes = extract(build, tmp_path, ExtractConfig(cmd_filter="^-O2$"))
    kinds = {Path(outcome.object.name).name: outcome.kind for outcome in outcomes}
    assert kinds["three.c.o"] == "extracted" and kinds["one.c.o"] == kinds["two.cc.o"] == "filtered"
    assert kinds["plain.c.o"] == "no_bitcode"


def test_section_names_can_be_configured(build: Path, tmp_path: Path) -> None:
    source = build / "obj/src/one.c.o"
    rename = ["--rename-section=.llvmbc=.bits", "--rename-section=.llvmcmd=.flags"]
    subprocess.run([OBJCOPY, *rename, source, tmp_path / "one.o"], check=True)
    objects = [ObjectFile(str(tmp_path / "one.o"), "one.o")]
    assert extract_objects(objects, tmp_path, ExtractConfig())[0].kind == "no_bitcode"
    config = ExtractConfig(cmd_section=".flags", bitcode_section=".bits")
    assert extract_objects(objects, tmp_path, config)[0].kind == "extracted"
    assert (tmp_path / "one.o.bc").read_bytes()[:4] == b"BC\xc0\xde"


def test_raw_bitcode_instead_of_an_object_is_reported(build: Path, tmp_path: Path) -> None:
    command: list[str | Path] = ["clang-19", "-flto", "-c", build.parent / "src/one.c", "-o", tmp_path / "lto.o"]
    subprocess.run(command, check=True)
    outcome = extract_objects([ObjectFile(str(tmp_path / "lto.o"), "lto.o")], tmp_path, ExtractConfig())[0]
    assert outcome.kind == "failed" and "ELF" in outcome.detail


def test_invalid_cmd_filter_is_refused(build: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--cmd-filter"):
        extract(build, tmp_path, ExtractConfig(cmd_filter="(-O2"))


def test_unwritable_output_stops_the_extraction(build: Path, tmp_path: Path) -> None:
    """Only problems of single objects are counted and skipped."""
    objects = [ObjectFile(str(build / "obj/src/one.c.o"), "one.o")]
    (tmp_path / "one.o.cmd").mkdir()
    with pytest.raises(OSError, match=r"one\.o\.cmd"):
        extract_objects(objects, tmp_path, ExtractConfig())


@pytest.mark.parametrize("triple", ["x86_64-apple-macosx11", "x86_64-pc-windows-msvc", "i686-w64-windows-gnu"])
def test_mach_o_and_coff_are_extracted(build: Path, tmp_path: Path, triple: str) -> None:
    source = build.parent / "src/one.c"
    for name, flags in (("one.o", ["-Xclang", "-fembed-bitcode=all"]), ("plain.o", [])):
        command: list[str | Path] = ["clang-19", f"--target={triple}", "-Oz", *flags, "-c", source]
        subprocess.run([*command, "-o", tmp_path / name], check=True)
    objects = [ObjectFile(str(tmp_path / name), name) for name in ("one.o", "plain.o")]
    extracted, plain = extract_objects(objects, tmp_path / "corpus", ExtractConfig())
    assert extracted.kind == "extracted" and plain.kind == "no_bitcode"
    # Mach-O has the wrapper of bitcode files for Darwin before it (llvm/docs/BitCodeFormat.rst).
    magic = b"\xde\xc0\x17\x0b" if "apple" in triple else b"BC\xc0\xde"
    assert (tmp_path / "corpus/one.o.bc").read_bytes()[:4] == magic
    arguments = (tmp_path / "corpus/one.o.cmd").read_bytes().split(b"\0")
    assert b"-cc1" in arguments
    assert arguments[arguments.index(b"-triple") + 1].startswith(triple.partition("-")[0].encode())
