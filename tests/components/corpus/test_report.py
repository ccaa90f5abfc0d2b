"""What users read about objects that are not in the corpus: each reason once, and only files that exist."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from components.core.formats.corpus import load_corpus
from components.corpus.__main__ import main as corpus
from components.platform.errors import UserError

EMBED = ("-Xclang", "-fembed-bitcode=all")


def build(directory: Path, compilers: list[tuple[str, ...]]) -> Path:
    """Compile a source file with each of the compilers; return the compilation database."""
    entries = []
    for number, compiler in enumerate(compilers):
        (directory / f"{number}.c").write_text(f"int f{number}(int x) {{ return x + {number}; }}\n")
        command = [*compiler, "-Oz" if "clang" in compiler[0] else "-Os", "-c", f"{number}.c", "-o", f"{number}.o"]
        subprocess.run(command, cwd=directory, check=True)
        entries.append({"directory": str(directory), "file": f"{number}.c", "arguments": command})
    (directory / "compile_commands.json").write_text(json.dumps(entries))
    return directory / "compile_commands.json"


def extract(database: Path, *more: str) -> None:
    output = str(database.parent / "corpus")
    corpus.main(["extract", "--compile-commands", str(database), "--output", output, *more], standalone_mode=False)


@pytest.mark.parametrize(
    ("compiler", "reason"), [("gcc", "it was compiled by GCC"), ("clang-19", "no section .llvmbc")]
)
def test_each_reason_is_said_once_and_no_missing_file_is_named(tmp_path: Path, compiler: str, reason: str) -> None:
    database = build(tmp_path, [(compiler,)] * 7)
    with pytest.raises(UserError) as caught:
        extract(database)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(set(lines)) == 3, "problem, reason, remedy"
    assert str(caught.value).count(reason) == 1 and "0.o, " in lines[1] and "and 2 more" in lines[1]
    named = re.findall(r"[\w/.-]+\.json", str(caught.value))
    assert named and all(Path(name).exists() for name in named)


def test_report_of_a_written_corpus_is_named_where_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extract(build(tmp_path, [("clang-19", *EMBED)] * 3 + [("gcc",)] * 6))
    output = capsys.readouterr().out
    assert output.count("compiled by GCC") == 1
    assert f"{tmp_path / 'corpus/report.json'}" in output and (tmp_path / "corpus/report.json").is_file()


def test_modules_of_a_newer_llvm_are_left_out_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = build(tmp_path, [("clang-19", *EMBED)] * 3 + [("clang-22", *EMBED), ("gcc",)])
    extract(database)
    output = capsys.readouterr().out
    assert "--llvm-major 22" in output
    extract(database, "--llvm-major", "19")
    output = capsys.readouterr().out
    assert f"{tmp_path}/3.o" in output and "another compiler" in output
    assert [module.name for module in load_corpus(tmp_path / "corpus")] == ["0.o", "1.o", "2.o"]
    obtained = ["obtain", "--compile-commands", str(database), "--output", str(tmp_path / "obtained")]
    corpus.main(obtained, standalone_mode=False)
    assert len(load_corpus(tmp_path / "obtained")) == 3, "the pipeline's training clang is of the default version"


def test_a_build_with_a_newer_llvm_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = build(tmp_path, [("clang-22", *EMBED)] * 3)
    obtain = ["obtain", "--output", str(tmp_path / "obtained")]
    with pytest.raises(UserError, match="newer LLVM") as caught:
        corpus.main([*obtain, "--compile-commands", str(database)], standalone_mode=False)
    assert "--llvm-major" in caught.value.remedy
    extract(database)
    assert [module.llvm_major() for module in load_corpus(tmp_path / "corpus")] == [22] * 3
    existing = ["--existing", str(tmp_path / "corpus")]
    with pytest.raises(UserError, match="all 3"):
        corpus.main([*obtain, *existing], standalone_mode=False)
    assert not (tmp_path / "obtained").exists()
    corpus.main([*obtain, *existing, "--llvm-major", "22"], standalone_mode=False)
    assert len(load_corpus(tmp_path / "obtained")) == 3


def test_a_corpus_without_modules_names_its_report_only_if_it_has_one(tmp_path: Path) -> None:
    (tmp_path / "corpus_description.json").write_text('{"modules": [], "has_thinlto": false}')
    with pytest.raises(UserError, match="is empty") as caught:
        load_corpus(tmp_path)
    assert "report.json" not in caught.value.remedy
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(UserError, match=r"report\.json"):
        load_corpus(tmp_path)
