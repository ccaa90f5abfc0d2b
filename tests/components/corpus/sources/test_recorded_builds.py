"""Builds as they are recorded: recursive make under a recorder, CMake, ninja -t compdb; and remedies that fit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from components.core.formats.corpus import load_corpus
from tests.support.commands import run_command

EMBED = ["-Oz", "-Xclang", "-fembed-bitcode=all"]
# Records a compile as bear, intercept-build and compiledb do, and runs it.
RECORDER = """#!{python} -IS
import json, os, sys
if "-c" in sys.argv or any(word.startswith("@") for word in sys.argv):
    file = next((word for word in sys.argv if word.endswith(".c")), "in-a-response-file.c")
    with open({entries!r}, "a") as out:
        words = ["clang-19", *sys.argv[1:]]
        print(json.dumps({{"directory": os.getcwd(), "file": file, "arguments": words}}), file=out)
os.execvp("clang-19", ["clang-19", *sys.argv[1:]])
"""
MAKEFILES = {
    "Makefile": "all:\n\t$(MAKE) -C a\n\t$(MAKE) -C b\n\t$(MAKE) -C lib\n",
    "a/Makefile": "util.o: util.c\n\t$(CC) $(CFLAGS) -c util.c\n",
    "b/Makefile": "util.o: util.c\n\ttime -o log $(CC) '-DX= -o z.o ' $(CFLAGS) -o wrong.o -outil.o -c util.c\n",
    "lib/Makefile": (
        "all: probe ../obj/x.o y.o z.o\n"
        "probe:\n\t$(CC) $(CFLAGS) -c probe.c -o /dev/null\n"
        "../obj/x.o: x.c\n\t$(CC) $(CFLAGS) -c x.c -o ../obj/x.o\n"
        "y.o: y.c\n\t$(CC) $(CFLAGS) -c y.c --output=y.o\n"
        "z.o: z.c\n\t$(CC) @z.rsp\n"
    ),
}
SOURCES = ("a/util.c", "b/util.c", "lib/probe.c", "lib/x.c", "lib/y.c", "lib/z.c")


def obtain(database: Path, output: Path) -> subprocess.CompletedProcess[str]:
    options = ("--compile-commands", database, "--output", output)
    return run_command("components.corpus", "obtain", *options, timeout=120)


def write_sources(root: Path, names: tuple[str, ...]) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        function = name.replace("/", "_").removesuffix(".c")
        path.write_text(
            f"static int g(int x) {{ return x * {len(name)}; }}\nint {function}(int x) {{ return g(x); }}\n"
        )


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return the database of a recursive make with an entry of each kind."""
    root = tmp_path / "src"
    write_sources(root, SOURCES)
    (root / "obj").mkdir()
    for name, text in MAKEFILES.items():
        (root / name).write_text(text)
    (root / "lib/z.rsp").write_text(f'{" ".join(EMBED)} -c "z.c"\n-o z.o\n')
    entries, recorder = tmp_path / "entries", tmp_path / "cc"
    recorder.write_text(RECORDER.format(python="/usr/bin/python3", entries=str(entries)))
    recorder.chmod(0o755)
    flags = [f"CC={recorder}", f"CFLAGS={' '.join(EMBED)}"]
    if shutil.which("time") is None:  # a shell's keyword has no -o
        (root / "b/Makefile").write_text(MAKEFILES["b/Makefile"].replace("time -o log", "env A=b"))
    subprocess.run(["make", "-C", root, *flags], check=True, capture_output=True)
    database = root / "compile_commands.json"
    database.write_text(json.dumps([json.loads(line) for line in entries.read_text().splitlines()]))
    return database


@pytest.mark.parametrize("relative", [False, True])
def test_recursive_make_gives_all_its_objects(recorded: Path, tmp_path: Path, relative: bool) -> None:
    """Their names do not depend on how directories are spelled."""
    entries = json.loads(recorded.read_text())
    if relative:
        for entry in entries:
            entry["directory"] = os.path.relpath(entry["directory"], recorded.parent)
    recorded.write_text(json.dumps(entries))
    done = obtain(recorded, tmp_path / "corpus")
    assert done.returncode == 0, done.stderr
    names = sorted(module.name for module in load_corpus(tmp_path / "corpus"))
    assert names == ["a/util.o", "b/util.o", "lib/y.o", "lib/z.o", "obj/x.o"]
    report = json.loads((tmp_path / "corpus/report.json").read_text())
    left_out = [(item["object"], item["detail"]) for item in report["left_out"]]
    assert left_out == [("probe.c", "its output is /dev/null")], "one odd entry does not stop the rest"


def test_cmake_and_ninja_databases_give_the_same_modules(tmp_path: Path) -> None:
    write_sources(tmp_path / "src", ("one.c", "two.c", "three.c", "unbuilt.c"))
    (tmp_path / "src/CMakeLists.txt").write_text(
        'cmake_minimum_required(VERSION 3.18)\nproject(p C)\nadd_compile_definitions([[X="-o z.o"]])\n'
        "add_library(p one.c two.c three.c)\nadd_library(q EXCLUDE_FROM_ALL unbuilt.c)\n"
    )
    build = tmp_path / "build"
    flags = [f"-DCMAKE_C_FLAGS={' '.join(EMBED)}", "-DCMAKE_C_COMPILER=clang-19", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    launcher = "-DCMAKE_C_COMPILER_LAUNCHER=env;A=b"
    configure = ["cmake", "-GNinja", "-S", str(tmp_path / "src"), "-B", str(build), *flags, launcher]
    subprocess.run(configure, check=True, capture_output=True)
    subprocess.run(["ninja", "-C", build], check=True, capture_output=True)
    (build / "ninja.json").write_bytes(subprocess.check_output(["ninja", "-C", build, "-t", "compdb"]))
    extracted = {}
    for name in ("compile_commands.json", "ninja.json"):
        done = obtain(build / name, tmp_path / name)
        assert done.returncode == 0, done.stderr
        first, *_ = done.stdout.splitlines()
        assert first.startswith("3 extracted") and first.endswith("1 not built"), "not an error"
        assert "unbuilt.c" not in done.stdout
        extracted[name] = {module.name: module.bitcode.read_bytes() for module in load_corpus(tmp_path / name)}
    assert extracted["compile_commands.json"] == extracted["ninja.json"]
    assert sorted(extracted["ninja.json"]) == [f"CMakeFiles/p.dir/{name}.c.o" for name in ("one", "three", "two")]


def compile_all(root: Path, compiler: list[str], arguments: list[str]) -> Path:
    """Compile three sources, without running anything if there is no compiler; return the database."""
    names = ("one.c", "two.c", "three.c")
    write_sources(root, names)
    entries = []
    for name in names:
        words = [word.format(name=name, stem=name.removesuffix(".c")) for word in arguments]
        if compiler:
            subprocess.run([*compiler, *words], cwd=root, check=True)
        entries.append({"directory": str(root), "file": name, "arguments": [*(compiler or ["clang-19"]), *words]})
    (root / "compile_commands.json").write_text(json.dumps(entries))
    return root / "compile_commands.json"


OBJECT = ["-c", "{name}", "-o", "{stem}.o"]
CAUSES = {
    "never built": ([], [*EMBED, *OBJECT], "3 not built", "build the project, so that these objects exist"),
    "without bitcode": (["clang-19"], OBJECT, "3 without bitcode", "with clang and -Xclang -fembed-bitcode=all"),
    "link-time optimization": (["clang-19"], [*EMBED, "-flto", *OBJECT], "this is LLVM bitcode", "(no -flto)"),
    "another compiler": (["gcc"], ["-Os", *OBJECT], "compiled by GCC", "mlgo corpus compilers"),
    "linked at once": (
        ["clang-19"],
        [*EMBED, "-shared", "-fPIC", "{name}", "-o", "{stem}.so"],
        "it links, too, and keeps no object",
        "(clang -c)",
    ),
    "a library named like an object": (
        ["gcc"],
        ["-shared", "-fPIC", "{name}", "-o", "{stem}.o"],
        "a linked program or library",
        "separate commands (clang -c)",
    ),
    "no compiler": (["true"], ["{name}"], "it runs no compiler of C or C++ but true", "the commands that compile"),
    "preprocessed": (["clang-19"], ["-E", "{name}", "-o", "{stem}.o"], "it only preprocesses", "(clang -c)"),
    "another level": (
        ["clang-19"],
        ["-O2", *EMBED[1:], *OBJECT],
        "3 filtered out",
        "build at the level of the problem",
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_remedy_fits_the_cause_and_names_only_options_that_exist(cause: str, tmp_path: Path) -> None:
    compiler, arguments, problem, remedy = CAUSES[cause]
    if compiler and shutil.which(compiler[0]) is None:
        compiler, problem = [], "3 not built"
        remedy = CAUSES["never built"][3]
    done = obtain(compile_all(tmp_path / "src", compiler, arguments), tmp_path / "corpus")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert problem in done.stderr and remedy in done.stderr.partition("remedy: ")[2], done.stderr
    assert "--obj-base-dir" not in done.stderr, "mlgo run has no such option"
    assert not (tmp_path / "corpus").exists()
