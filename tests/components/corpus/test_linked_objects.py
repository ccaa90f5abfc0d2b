"""Linked objects and archives are split into their modules; what cannot be replayed is left out by name."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from components.core.compiler.objects.elf import Elf
from components.core.formats.bitcode import bitcode_problem
from components.core.formats.corpus import load_corpus, write_description
from components.corpus.extraction import compiler_used
from components.corpus.extraction.extract import ExtractConfig, extract_objects
from components.corpus.extraction.outcome import Outcome
from components.corpus.sources.objects import ObjectFile

EMBED = ["-Xclang", "-fembed-bitcode=all"]


def run(directory: Path, *command: str) -> None:
    subprocess.run(command, cwd=directory, check=True)


def compile_object(directory: Path, name: str, code: str, *flags: str) -> None:
    (directory / f"{name}.c").write_text(code)
    run(directory, "clang-19", "-Oz", *(flags or EMBED), "-c", f"{name}.c", "-o", f"{name}.o")


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("objects")
    compile_object(directory, "a", "int a(int x) { return x + 1; }")
    compile_object(directory, "b", "int a(int); int b(int x) { return a(x) * 3; }")
    compile_object(directory, "with_a_long_name_of_a_member", "int c(int x) { return x * x; }")
    return directory


def extract(directory: Path, output: Path, *names: str) -> list[Outcome]:
    output.mkdir()
    outcomes = extract_objects([ObjectFile(str(directory / name), name) for name in names], output, ExtractConfig())
    extracted = [outcome.object.name for outcome in outcomes if outcome.kind == "extracted"]
    if extracted:
        write_description(output, extracted)
        assert [module.name for module in load_corpus(output)] == extracted
    return outcomes


def kinds(outcomes: list[Outcome]) -> dict[str, str]:
    return {outcome.object.name: outcome.kind for outcome in outcomes}


@pytest.mark.parametrize("linker", ["ld -r", "ld.lld-19 -r", "clang-19 -shared -fuse-ld=lld", "twice"])
def test_modules_of_a_linked_object_are_those_of_its_objects(objects: Path, tmp_path: Path, linker: str) -> None:
    if linker == "twice":  # a linked object that is linked again
        run(objects, "ld.lld-19", "-r", "a.o", "-o", str(tmp_path / "one.o"))
        run(objects, "ld.lld-19", "-r", str(tmp_path / "one.o"), "b.o", "-o", "linked.o")
    else:
        run(objects, *linker.split(), "a.o", "b.o", "-o", "linked.o")
    extract(objects, tmp_path / "apart", "a.o", "b.o")
    assert kinds(extract(objects, tmp_path / "linked", "linked.o")) == {
        "linked.o.1": "extracted",
        "linked.o.2": "extracted",
    }
    for part, name in (("linked.o.1", "a.o"), ("linked.o.2", "b.o")):
        for suffix in (".bc", ".cmd"):
            apart = (tmp_path / "apart" / f"{name}{suffix}").read_bytes()
            assert (tmp_path / "linked" / f"{part}{suffix}").read_bytes() == apart


def test_module_is_extracted_once(objects: Path, tmp_path: Path) -> None:
    run(objects, "ld.lld-19", "-r", "a.o", "b.o", "-o", "both.o")
    outcomes = extract(objects, tmp_path / "corpus", "both.o", "b.o")
    assert kinds(outcomes) == {"both.o.1": "extracted", "both.o.2": "duplicate", "b.o": "extracted"}
    assert not list((tmp_path / "corpus").glob("both.o.2*"))


def test_modules_of_a_linked_object_keep_what_they_declare_used(tmp_path: Path) -> None:
    """Where two modules have such a function of one name, which one is kept is unknown: both are left out."""
    used = "static __attribute__((used)) int {} (int x) {{ return x * 9; }}"
    compile_object(tmp_path, "a", f"{used.format('f')} int a(int x) {{ return x + 1; }}")
    compile_object(tmp_path, "b", f"{used.format('g')} int b(int x) {{ return x - 1; }}")
    compile_object(tmp_path, "c", "static int g(int x) { return x * 3; } int c(int x) { return g(x) + 2; }")
    for names in (("a", "b"), ("a", "b", "c")):
        run(tmp_path, "ld", "-r", *(f"{name}.o" for name in names), "-o", "linked.o")
        outcomes = extract(tmp_path, tmp_path / f"linked{len(names)}", "linked.o")
        apart = extract(tmp_path, tmp_path / f"apart{len(names)}", *(f"{name}.o" for name in names))
        assert {outcome.kind for outcome in apart} == {"extracted"}
        expected = {"linked.o.1": "extracted", "linked.o.2": "extracted" if len(names) == 2 else "not_restored"}
        assert kinds(outcomes) == expected | ({"linked.o.3": "not_restored"} if len(names) == 3 else {})
        for number, name in enumerate(names, 1):
            if outcomes[number - 1].kind == "extracted":
                bitcode = (tmp_path / f"linked{len(names)}" / f"linked.o.{number}.bc").read_bytes()
                assert bitcode == (tmp_path / f"apart{len(names)}" / f"{name}.o.bc").read_bytes()
            else:
                assert "define g," in outcomes[number - 1].detail


def test_linked_object_is_looked_at_once(objects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object of hundreds of modules would otherwise be read as often."""
    looked: list[Elf] = []
    whole = compiler_used._find_unreferenced

    def count(elf: Elf) -> Any:
        looked.append(elf)
        return whole(elf)

    monkeypatch.setattr(compiler_used, "_find_unreferenced", count)
    run(objects, "ld", "-r", "a.o", "b.o", "-o", "linked.o")
    outcomes = extract(objects, tmp_path / "corpus", "linked.o")
    assert kinds(outcomes) == {"linked.o.1": "extracted", "linked.o.2": "extracted"} and len(looked) == 1


def test_object_with_arguments_of_some_modules_is_left_out(objects: Path, tmp_path: Path) -> None:
    compile_object(objects, "bare", "int bare(void) { return 9; }", "-fembed-bitcode=bitcode")
    run(objects, "ld.lld-19", "-r", "a.o", "bare.o", "-o", "mixed.o")
    (outcome,) = extract(objects, tmp_path / "corpus", "mixed.o")
    assert outcome.kind == "failed" and "2 modules" in outcome.detail


def test_imported_bitcode_of_two_modules_is_damaged(objects: Path, tmp_path: Path) -> None:
    extract(objects, tmp_path / "corpus", "a.o", "b.o")
    both = b"".join((tmp_path / "corpus" / f"{name}.o.bc").read_bytes() for name in "ab")
    problem = bitcode_problem(lambda offset, length: both[offset : offset + length], len(both))
    assert "2 modules" in problem


@pytest.mark.parametrize("kind", ["rc", "rcT"])
def test_members_of_an_archive_are_extracted(objects: Path, tmp_path: Path, kind: str) -> None:
    """Also of a thin one, with long names, and with two members of the same name."""
    (objects / "sub").mkdir(exist_ok=True)
    run(objects, "cp", "b.o", "sub/a.o")
    archive = f"lib{kind}.a"
    run(objects, "llvm-ar-19", kind, archive, "a.o", "with_a_long_name_of_a_member.o")
    if kind == "rc":
        run(objects, "llvm-ar-19", "q", archive, "sub/a.o")
    else:
        (objects / archive).unlink()
        run(objects, "llvm-ar-19", kind, archive, "a.o", "with_a_long_name_of_a_member.o", "sub/a.o")
    outcomes = kinds(extract(objects, tmp_path / "corpus", archive))
    names = ["a.o", "with_a_long_name_of_a_member.o", "a.2.o"]
    assert outcomes == {f"{archive}/{name}": "extracted" for name in names}


def test_damaged_archive_is_left_out(objects: Path, tmp_path: Path) -> None:
    run(objects, "llvm-ar-19", "rc", "whole.a", "a.o")
    whole = (objects / "whole.a").read_bytes()
    (objects / "cut.a").write_bytes(whole[:-600])
    (objects / "odd.a").write_bytes(whole[:8] + b"?" * 100)
    header = b"self.a/" + b" " * 9 + b"0".ljust(32) + b"100".ljust(10) + b"`\n"
    (objects / "self.a").write_bytes(b"!<thin>\n" + header)
    outcomes = extract(objects, tmp_path / "corpus", "cut.a", "odd.a", "self.a", "gone.a")
    assert [outcome.kind for outcome in outcomes] == ["failed", "failed", "failed", "missing"]
    assert all(outcome.detail for outcome in outcomes)


def test_archive_without_bitcode_is_one_entry(objects: Path, tmp_path: Path) -> None:
    compile_object(objects, "none", "int none(void) { return 8; }", "-g0")
    run(objects, "llvm-ar-19", "rc", "none.a", "none.o")
    (outcome,) = extract(objects, tmp_path / "corpus", "none.a")
    assert (outcome.object.name, outcome.kind) == ("none.a", "no_bitcode") and "1 members" in outcome.detail


@pytest.mark.parametrize(
    ("flags", "kind", "words"),
    [
        (["-Xclang", "-fembed-bitcode=marker"], "no_bitcode", "an empty section .llvmbc"),
        (["-fembed-bitcode=bitcode"], "no_bitcode", "no section .llvmcmd"),
        (["-flto"], "failed", "compile it without -flto"),
        ([*EMBED, "--coverage"], "instrumented", "without --coverage"),
        ([*EMBED, "-fprofile-arcs"], "instrumented", "without --coverage"),
        ([*EMBED, "-ftest-coverage"], "extracted", ""),
        ([*EMBED, "-fprofile-generate"], "extracted", ""),
        ([*EMBED, "-fprofile-instr-generate"], "extracted", ""),
        ([*EMBED, "-fsanitize=address"], "extracted", ""),
    ],
)
def test_object_that_cannot_be_replayed_is_left_out_by_name(
    tmp_path: Path, flags: list[str], kind: str, words: str
) -> None:
    compile_object(tmp_path, "x", "int x(int a) { return a * 7; }", *flags)
    (outcome,) = extract(tmp_path, tmp_path / "corpus", "x.o")
    assert outcome.kind == kind and words in outcome.detail
