"""What a forecast compiles: the commands of a compilation database, and the modules of a corpus."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
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
        "cc @own.rsp",
        "clang -c a.c -o x.o -fmodule-output=m.pcm -fsave-optimization-record -foptimization-record-file=r.yaml",
    ],
)
def test_compile_writes_only_the_object(tmp_path: Path, clang: Path, command: str) -> None:
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    (tmp_path / "own.rsp").write_text("-O2 -MD -MF x.d -c a.c -o x.o\n")
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


def test_options_in_response_files_count(tmp_path: Path) -> None:
    (tmp_path / "own.rsp").write_text('-fPIC -fipa-pta "-DA=b c"\n')
    (unit,) = source_units(database(tmp_path, entry(tmp_path, "gcc @own.rsp -c a.c")))
    assert unit.linkage == "shared library"
    words = unit.without(["-fipa-pta"]).command(Path("clang"), [], Path("/o"))
    assert words[1:4] == ["-fPIC", "-DA=b c", "a.c"]


def compiles(unit: SourceUnit, clang: Path, output: Path) -> bool:
    done = subprocess.run(unit.command(clang, [], output), cwd=unit.directory, capture_output=True, text=True)
    print(done.stderr)
    return done.returncode == 0 and output.stat().st_size > 0


def test_source_compiles_before_cmake_knows_where_modules_are(tmp_path: Path, clang: Path) -> None:
    (tmp_path / "a.cc").write_text("int f() { return 1; }\n")
    (unit,) = source_units(
        database(tmp_path, entry(tmp_path, "clang++ -std=c++20 @d/a.o.modmap -c a.cc -o d/a.o", "a.cc"))
    )
    assert compiles(unit, clang, tmp_path / "own.o")


def test_modules_compile_as_the_build_left_them(tmp_path: Path, clang: Path) -> None:
    (tmp_path / "m.cppm").write_text("export module m; export int f() { return 1; }\n")
    (tmp_path / "a.cc").write_text("import m; int g() { return f(); }\n")
    (tmp_path / "m.modmap").write_text("-x c++-module\n-fmodule-output=m.pcm\n")
    (tmp_path / "a.modmap").write_text("-fmodule-file=m=m.pcm\n")
    build = "clang++-19 -std=c++20 -O2 @m.modmap -c m.cppm -o m.o", "clang++-19 -std=c++20 -O2 @a.modmap -c a.cc"
    for command in build:
        subprocess.run(command.split(), cwd=tmp_path, check=True)
    written = (tmp_path / "m.pcm").stat().st_mtime_ns
    units = source_units(database(tmp_path, *(entry(tmp_path, line, line.split()[5]) for line in build)))
    assert [unit.language for unit in units] == ["c++", "c++"]
    assert all(compiles(unit, clang, tmp_path / "own.o") for unit in units)
    assert (tmp_path / "m.pcm").stat().st_mtime_ns == written


@pytest.mark.parametrize(
    "use", ["-Xclang -include-pch -Xclang pre.hxx.pch -Xclang -include -Xclang pre.hxx", "-include pre.hxx"]
)
@pytest.mark.parametrize("compiler", ["clang++-19", "g++"])
def test_precompiled_headers_of_other_compilers_are_not_used(
    tmp_path: Path, clang: Path, use: str, compiler: str
) -> None:
    (tmp_path / "pre.hxx").write_text("#include <cstddef>\n")
    (tmp_path / "a.cc").write_text("std::size_t f() { return 1; }\n")
    suffix = "gch" if compiler == "g++" else "pch"
    precompile = f"{compiler} -O2 -x c++-header pre.hxx -o pre.hxx.{suffix}"
    subprocess.run(precompile.split(), cwd=tmp_path, check=True)
    entries = [entry(tmp_path, f"{precompile} -c", "pre.hxx"), entry(tmp_path, f"{compiler} -O2 {use} -c a.cc", "a.cc")]
    (unit,) = source_units(database(tmp_path, *entries))
    assert compiles(unit, clang, tmp_path / "own.o")


@pytest.mark.parametrize("options", ["-flto -fwhole-program-vtables", "-flto -fvisibility=hidden -fsanitize=cfi"])
def test_options_that_need_lto_are_off(tmp_path: Path, clang: Path, options: str) -> None:
    (tmp_path / "a.cc").write_text("struct A { virtual int f(); }; int A::f() { return 1; }\n")
    (unit,) = source_units(database(tmp_path, entry(tmp_path, f"clang++ {options} -c a.cc", "a.cc")))
    assert compiles(unit, clang, tmp_path / "own.o")


@pytest.mark.parametrize(
    ("compiler", "target"),
    [
        ("/usr/bin/aarch64-linux-gnu-g++-12", "aarch64-linux-gnu"),
        ("arm-none-eabi-gcc", "arm-none-eabi"),
        ("x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32"),
        (f"{os.uname().machine}-linux-gnu-gcc", None),
        ("ccache-gcc", None),
        ("clang-19", None),
    ],
)
def test_target_is_that_of_a_cross_compiler(tmp_path: Path, clang: Path, compiler: str, target: str | None) -> None:
    (unit,) = source_units(database(tmp_path, entry(tmp_path, f"{compiler} -O2 -c a.c")))
    found = [word for word in unit.command(clang, [], Path("/o")) if word.startswith("--target")]
    assert found == ([f"--target={target}"] if target else [])


def test_each_object_counts_once_however_it_is_spelled(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    entries = [
        {"directory": ".", "arguments": ["cc", "-c", "a.c", "-o", "b/a.o"], "file": "a.c"},
        {"directory": "b", "command": "cc -c ../a.c", "file": "../a.c"},
        entry(tmp_path, "cc -c a.c -o ./b/../b/a.o"),
        entry(tmp_path, "cc -c a.c"),
    ]
    units = source_units(database(tmp_path, *entries))
    assert [unit.name for unit in units] == ["b/a.o", "a.o"]
    assert [unit.directory for unit in units] == [tmp_path, tmp_path]


def test_windows_database_is_an_error(tmp_path: Path) -> None:
    entries = [
        {"directory": "C:\\own", "command": "C:\\PROGRA~1\\cl.exe /O1 /c a.c /Foa.obj", "file": "C:\\own\\a.c"},
        {"directory": "C:/own", "command": "clang-cl.exe /O1 /c -- a.c", "file": "C:/own/a.c"},
    ]
    with pytest.raises(UserError, match="2 entries"):
        source_units(database(tmp_path, *entries))


def test_large_database_is_read_in_seconds(tmp_path: Path) -> None:
    flags = " ".join(f'-I/own/include/{number} -DNAME{number}=\\"{number}\\"' for number in range(8))
    entries = [entry(tmp_path, f"/usr/bin/c++ {flags} -O2 -o d/{n}.o -c {n}.cc", f"{n}.cc") for n in range(20_000)]
    path = database(tmp_path, *entries)
    started_s = time.process_time()
    units = source_units(path)
    assert len({unit.name for unit in units}) == 20_000
    assert time.process_time() - started_s < 30


def test_what_is_no_compile_of_c_is_left_out(tmp_path: Path) -> None:
    entries = [
        entry(tmp_path, "as a.s -o a.o", "a.s"),
        entry(tmp_path, "cc -c a.S", "a.S"),
        entry(tmp_path, "cc a.o -o a"),
        entry(tmp_path, "cc -E a.c"),
        {"directory": str(tmp_path), "file": "a.c"},
        "a.c",
        entry(tmp_path, "cc -x c -c - -o a.o", "-"),
        entry(tmp_path, "cc -DA=\0 -c a.c"),
        entry(tmp_path, "cc -DA=\ud800 -c a.c"),
        entry(tmp_path / "\ud800", "cc -c a.c"),
        entry(tmp_path, "cc -c b.c", "b.c"),
        entry(tmp_path, "cc -c b.c", "b.c"),
    ]
    assert [unit.name for unit in source_units(database(tmp_path, *entries))] == ["b.o"]
    with pytest.raises(UserError, match="10 entries"):
        source_units(database(tmp_path, *entries[:10]))


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
    with pytest.raises(UserError, match="3 modules"):
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
