"""Links that the compilers of `mlgo corpus compilers` record, by clang itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from components.core.compiler.objects.elf import Elf
from components.core.formats.links import Link
from components.core.projects.build_links.recorded import read_recorded
from components.corpus.compilers import compilers

EMBEDDED = {".llvmbc", ".llvmcmd"}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    done = CliRunner().invoke(compilers, ["--output", str(tmp_path / "a b")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (tmp_path / "main.c").write_text("int main(void) { return 3; }\n")
    return tmp_path / "a b"


def run(tools: Path, *words: str, driver: str = "clang", cwd: Path | None = None) -> int:
    return subprocess.run([tools / driver, *words], cwd=cwd or tools.parent, capture_output=True).returncode


def sections(path: Path) -> set[str]:
    return set(Elf(memoryview(path.read_bytes())).section_sizes())


def test_link_is_recorded_and_the_linked_file_is_without_bitcode(tools: Path) -> None:
    assert run(tools, "-c", "main.c", "-o", "main.o") == 0
    assert run(tools, "main.o", "-o", "with space", driver="g++") == 0
    assert read_recorded(tools) == [
        Link(str(tools.parent), True, ("main.o", "-o", "with space"), str(tools.parent / "with space"))
    ]
    assert sections(tools.parent / "main.o") >= EMBEDDED and not EMBEDDED & sections(tools.parent / "with space")
    assert subprocess.run([tools.parent / "with space"]).returncode == 3


def test_last_successful_link_of_a_file_counts(tools: Path) -> None:
    (tools.parent / "bad.c").write_text("int missing(void);\nint main(void) { return missing(); }\n")
    for word in ("-O1", "-O2"):
        assert run(tools, word, "main.c", "-o", "program") == 0
    assert run(tools, "bad.c", "-o", "broken") == 1, "the exit status is the linker's"
    (link,) = read_recorded(tools)
    assert link.arguments == ("-O2", "main.c", "-o", "program")
    (tools.parent / "program").unlink()
    assert read_recorded(tools) == []


def test_failed_link_of_a_file_of_before_does_not_count(tools: Path) -> None:
    assert run(tools, "-O1", "main.c", "-o", "program") == 0
    assert run(tools, "-O2", "missing.o", "-o", "program") == 1
    assert len(list((tools / "links").iterdir())) == 2
    assert [link.arguments[0] for link in read_recorded(tools)] == ["-O1"]


def test_checks_compiles_and_questions_are_not_recorded(tools: Path) -> None:
    scratch = tools.parent / "build" / "CMakeFiles" / "CMakeScratch" / "TryCompile-abc"
    scratch.mkdir(parents=True)
    for words in (["-c", "main.c", "-o", "main.o"], ["main.c", "-o", "conftest"], ["-E", "main.c", "-o", "main.i"]):
        assert run(tools, *words) == 0
    assert run(tools, str(tools.parent / "main.c"), "-o", "cmTC_12", cwd=scratch) == 0
    identification = tools.parent / "build" / "CMakeFiles" / "3.25.1" / "CompilerIdC"
    identification.mkdir(parents=True)
    assert run(tools, str(tools.parent / "main.c"), cwd=identification) == 0
    for words in (["--version"], ["-v"], ["-print-search-dirs"]):
        assert run(tools, *words) == 0
    assert run(tools, "--version", driver="ld") == 0
    assert run(tools, "-shared", "main.o", "-o", "all.so", driver="ld") == 0
    assert list((tools / "links").iterdir()) == []
    assert sections(tools.parent / "conftest") >= EMBEDDED, "nothing but the compile itself ran"


def test_content_of_a_response_file_that_the_build_removes_is_kept(tools: Path) -> None:
    assert run(tools, "-c", "main.c", "-o", "main object.o") == 0
    response = tools.parent / "objects.rsp"
    response.write_text('"main object.o"\n')
    assert run(tools, "-O1", f"@{response.name}", "-o", "program") == 0
    response.unlink()
    (link,) = read_recorded(tools)
    assert link.arguments == ("-O1", "main object.o", "-o", "program")


@pytest.mark.parametrize(("word", "output"), [("@link.params", "the program"), ("main.c", "a.out")])
def test_link_that_names_no_output_itself_is_recorded_and_without_bitcode(tools: Path, word: str, output: str) -> None:
    (tools.parent / "link.params").write_text("-o\n'the program'\nmain.c\n")
    assert run(tools, word) == 0
    (link,) = read_recorded(tools)
    assert link.output == str(tools.parent / output) and not EMBEDDED & sections(Path(link.output))


@pytest.mark.parametrize("content", ["-c main.c", '"-c"\nmain.c\n'])
def test_compile_by_a_response_file_keeps_its_bitcode_and_is_not_recorded(tools: Path, content: str) -> None:
    (tools.parent / "compile.rsp").write_text(content)
    assert run(tools, "@compile.rsp", "-o", "main.o") == 0
    assert sections(tools.parent / "main.o") >= EMBEDDED and not list((tools / "links").iterdir())


@pytest.mark.parametrize("words", [("-r", "main.o"), ("@all.rsp",)])
def test_relocatable_link_keeps_its_bitcode(tools: Path, words: tuple[str, ...]) -> None:
    assert run(tools, "-c", "main.c", "-o", "main.o") == 0
    (tools.parent / "all.rsp").write_text("-r main.o")
    assert run(tools, *words, "-o", "all.o") == 0
    assert sections(tools.parent / "all.o") >= EMBEDDED and len(read_recorded(tools)) == 1


def test_build_does_not_need_the_records(tools: Path) -> None:
    shutil.rmtree(tools / "links")
    assert run(tools, "main.c", "-o", "program") == 0
    assert not EMBEDDED & sections(tools.parent / "program") and read_recorded(tools) == []


def test_incomplete_records_are_left_out(tools: Path) -> None:
    assert run(tools, "main.c", "-o", "program") == 0
    (record,) = (tools / "links").iterdir()
    content = record.read_bytes()
    for number, cut in enumerate((0, 1, len(content) - 3)):
        (tools / "links" / f"link-{number}").write_bytes(content[:cut])
    assert len(read_recorded(tools)) == 1


@pytest.mark.parametrize("words", [("-r",), ("-S", "-r", "-m", "elf_x86_64"), ("--relocatable", "-z", "noexecstack")])
def test_relocatable_link_without_a_driver_is_recorded_as_that_of_one(tools: Path, words: tuple[str, ...]) -> None:
    assert run(tools, "-c", "main.c", "-o", "main.o") == 0
    assert run(tools, *words, "main.o", "-o", "all.o", driver="ld") == 0
    (link,) = read_recorded(tools)
    assert link.output == str(tools.parent / "all.o") and "-r" in link.arguments and "main.o" in link.arguments
    first = (tools.parent / "all.o").read_bytes()
    assert first and sections(tools.parent / "all.o") >= EMBEDDED
    assert subprocess.run(["clang-19", *link.arguments], cwd=tools.parent).returncode == 0
    assert (tools.parent / "all.o").read_bytes() == first, "the driver makes the same object"


def test_linker_of_other_compilers_in_the_path_is_not_taken(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    second = tools.parent / "second"
    done = CliRunner().invoke(compilers, ["--output", str(second)], catch_exceptions=False)
    assert done.exit_code == 0 and str(tools) not in (second / "ld").read_text()
