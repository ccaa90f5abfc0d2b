"""What a forecast compiles: the commands of a compilation database, and the modules of a corpus."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from components.core.formats.corpus import Corpus
from components.forecast.units import SourceUnit, corpus_units, source_units
from components.platform.errors import UserError


def database(directory: Path, *entries: object) -> Path:
    path = directory / "compile_commands.json"
    path.write_text(json.dumps(list(entries)))
    return path


def entry(directory: Path, command: str, source: str = "a.c") -> dict[str, str]:
    return {"directory": str(directory), "command": command, "file": source}


@pytest.mark.parametrize(
    "command",
    [
        "cc -O2 -MD -MT x -MF x.d -o x.o -c a.c",
        "ccache gcc -MMD -MP -MFx.d -c a.c -ox.o -save-temps",
        "mkdir -p d && cc -c -Wp,-MMD,x.d a.c -o x.o",
        "sh -c 'cc -c a.c -o x.o -ftime-trace=t.json'",
        "cc -c -o x.o -- a.c",
    ],
)
def test_compile_writes_only_the_object(tmp_path: Path, clang: Path, command: str) -> None:
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    (unit,) = source_units(database(tmp_path, entry(tmp_path, command)))
    before = sorted(tmp_path.iterdir())
    output = tmp_path / "out" / "own.o"
    output.parent.mkdir()
    subprocess.run(unit.command(clang, [], output), cwd=unit.directory, check=True)
    assert output.stat().st_size and list(output.parent.iterdir()) == [output]
    assert sorted(path for path in tmp_path.iterdir() if path.name != "out") == before


def test_flags_follow_the_projects_own(tmp_path: Path, clang: Path) -> None:
    commands = "g++ -O3 -flto -Werror -c a.cc", "gcc -c b.c"
    entries = [entry(tmp_path, command, command.split()[-1]) for command in commands]
    units = source_units(database(tmp_path, *entries))
    words = [unit.command(clang, ["-mllvm", "-x"], Path("/o")) for unit in units]
    assert [Path(word[0]).name for word in words] == ["clang++-19", clang.name]
    assert words[0].index("-Oz") > words[0].index("-O3") and words[0].index("-fno-lto") > words[0].index("-flto")
    assert words[0][words[0].index("-mllvm") - 1] == words[0][words[0].index("-x") - 1] == "-Xclang"
    assert [unit.language for unit in units] == ["c++", "c"]


@pytest.mark.parametrize(
    ("flags", "linkage"),
    [
        ("", "program"),
        ("-fPIC", "shared library"),
        ("-fpic -fPIE", "program"),
        ("-fPIC -fno-pie", "program at fixed addresses"),
    ],
)
def test_linkage_is_that_of_the_last_flag(tmp_path: Path, clang: Path, flags: str, linkage: str) -> None:
    (tmp_path / "a.c").touch()
    (unit,) = source_units(database(tmp_path, entry(tmp_path, f"cc {flags} -c a.c")))
    assert unit.linkage == linkage
    command = [str(clang), "-###", *flags.split(), "-c", "a.c"]
    cc1 = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stderr
    is_pic, is_pie = '"-pic-level"' in cc1, '"-pic-is-pie"' in cc1
    assert (is_pic, is_pie) == (linkage != "program at fixed addresses", linkage == "program")


def test_what_is_no_compile_of_c_is_left_out(tmp_path: Path) -> None:
    entries = [
        entry(tmp_path, "as a.s -o a.o", "a.s"),
        entry(tmp_path, "cc -c a.S", "a.S"),
        entry(tmp_path, "cc a.o -o a"),
        entry(tmp_path, "cc -E a.c"),
        {"directory": str(tmp_path), "file": "a.c"},
        "a.c",
        entry(tmp_path, "cc -c b.c", "b.c"),
        entry(tmp_path, "cc -c b.c", "b.c"),
    ]
    assert [unit.name for unit in source_units(database(tmp_path, *entries))] == ["b.o"]
    with pytest.raises(UserError, match=r"none of the 6 entries of .* compiles C or C\+\+"):
        source_units(database(tmp_path, *entries[:6]))


def test_options_that_clang_lacks_can_be_left_out(tmp_path: Path) -> None:
    (unit,) = source_units(database(tmp_path, entry(tmp_path, "gcc -fipa-pta -O2 -c a.c")))
    fewer = unit.without(["-fipa-pta"])
    assert isinstance(fewer, SourceUnit) and fewer.compile.arguments == ("-O2", "a.c")


@pytest.mark.parametrize("content", ["{", "{}", "[]"])
def test_invalid_database_is_an_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "compile_commands.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"compile_commands\.json"):
        source_units(path)


def test_modules_at_other_levels_are_left_out(
    tiny_corpus: Corpus, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "corpus"
    shutil.copytree(tiny_corpus.directory, copy)
    assert len(corpus_units(copy)) == 3
    change_level(copy, "app/leaf.c.o")
    assert [unit.name for unit in corpus_units(copy)] == ["app/tree.c.o", "lib/strings.cpp.o"]
    assert "left out: 1 of 3 modules" in capfd.readouterr().out
    for name in ("app/tree.c.o", "lib/strings.cpp.o"):
        change_level(copy, name)
    with pytest.raises(UserError, match="none of the 3 modules"):
        corpus_units(copy)


def change_level(corpus: Path, name: str) -> None:
    path = corpus / f"{name}.cmd"
    path.write_bytes(path.read_bytes().replace(b"\0-Oz\0", b"\0-O2\0"))


def test_corpus_and_sources_have_the_same_linkage(
    make_corpus: Callable[[Path, dict[str, str]], Corpus], tmp_path: Path
) -> None:
    corpus = make_corpus(tmp_path / "corpus", {"a.c": "int f(void) { return 1; }\n"})
    (module,) = corpus_units(corpus.directory)
    (source,) = source_units(database(tmp_path, entry(tmp_path, "cc -c a.c")))
    assert module.linkage == source.linkage == "program" and module.language == source.language == "c"
