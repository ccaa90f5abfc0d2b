"""Programs as modules: real builds with the compilers of `mlgo corpus compilers --unit program`, and what lld resolved.

What a program exports, and what its native parts use, is in the module and visible; all else is local to it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from components.core.compiler.replay.command_line import replay_arguments
from components.core.formats.bitcode_symbols import read_symbols
from components.core.formats.corpus import load_corpus
from components.corpus.compilers import compilers
from components.corpus.extract_command import extract
from tests.components.toolchain.programs.linked_programs import PROGRAMS

LLVM = Path("/usr/lib/llvm-19/bin")
SOURCES = {
    "main.c": "int part(int);\nint fast(int);\nint from_archive(int);\nint old(int);\n"
    "int from_assembly(int a) { return part(a) + 1; }\n"
    "int from_old(int a) { return part(a) * 7; }\n"
    "int main(int n, char **a) { return fast(n) + from_archive(n) + part(n) + old(n); }\n",
    "part.c": "int part(int a) { return a * 3; }\nint not_used(int a) { return part(a) + 5; }\n",
    "archive.c": "int part(int);\nint from_archive(int a) { return part(a) - 4; }\nint other(int a) { return a; }\n",
    "fast.s": ".text\n.globl fast\n.type fast,@function\nfast:\n  jmp from_assembly@PLT\n"
    '.section .note.GNU-stack,"",@progbits\n',
    "old.c": "int from_old(int);\nint old(int a) { return from_old(a) + 2; }\n",
    "shared.c": "static int twice(int a) { return a * 2; }\nint api(int a) { return twice(a) + 1; }\n"
    "int internal(int a) { return api(a) * 3; }\nint api_2(int a) { return internal(a); }\n",
    "api.map": "{ global: api*; no_such; local: *; };\n",
    "user.c": "int api(int);\nint hook(int a) { return a; }\nint main(void) { return api(3) - 7; }\n",
    "second.c": "int main(void) { return 2; }\n",
    "whole.c": "int part(int);\nint helper(int a) { return part(a); }\n"
    "int main(int n, char **a) { return helper(n); }\n",
}
MAKEFILE = """CC = clang
all: program libapi.so user lib/dynamic whole static
%.o: %.c
\t$(CC) -O2 -Wall -Werror -fPIC -c $< -o $@
fast.o: fast.s
\t$(CC) -O2 -c $< -o $@
libarchive.a: archive.o
\t$(AR) cr $@ $^
program: main.o part.o fast.o libarchive.a prebuilt/libold.a
\t$(CC) -O2 main.o part.o fast.o libarchive.a -Lprebuilt -lold -o $@
libapi.so: shared.o api.map
\t$(CC) -shared -Wl,--version-script=api.map shared.o -o $@
user: user.o libapi.so
\t$(CC) user.o -L. -lapi -Wl,-rpath,'$$ORIGIN' -o $@
lib/dynamic: user.o libapi.so
\tmkdir -p lib && $(CC) -rdynamic user.o -L. -lapi -Wl,-rpath,'$$ORIGIN/..' -o $@
merged.o: whole.o part.o
\tld -r whole.o part.o -o $@
whole: merged.o
\t$(CC) merged.o -o $@
static: whole.o part.o
\t$(CC) -no-pie -O3 whole.o part.o -o $@
"""


@dataclass(frozen=True)
class Built:
    """A finished build: its directory, that of the compilers, the directory of the corpus, and what extract printed."""

    project: Path
    compilers: Path
    corpus: Path
    output: str

    def visible(self, module: str) -> set[str]:
        """Return the functions of a module that others can refer to."""
        return set(read_symbols((self.corpus / f"{module}.bc").read_bytes()).strong)

    def local(self, module: str) -> set[str]:
        return set(read_symbols((self.corpus / f"{module}.bc").read_bytes()).local)

    def arguments(self, module: str) -> list[str]:
        (program,) = (item for item in load_corpus(self.corpus).modules if item.name == module)
        return list(program.arguments())

    def left(self) -> dict[str, tuple[str, str]]:
        """Return what the report says of each link without a module: name -> kind and detail."""
        report = json.loads((self.corpus / "report.json").read_text())
        return {Path(item["object"]).name: (item["kind"], item["detail"]) for item in report["left_out"]}


def invoke(command, *arguments: str, status: int = 0) -> str:
    done = CliRunner().invoke(command, list(arguments), catch_exceptions=False, standalone_mode=True)
    assert done.exit_code == status, done.output
    return done.output


def write(directory: Path, files: dict[str, str]) -> Path:
    directory.mkdir(parents=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def compile_by(made: Path, script: str, project: Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a script in a project whose programs are the compilers `made`."""
    environment = {**os.environ, "PATH": f"{made}:{os.environ['PATH']}"}
    return subprocess.run(["sh", "-c", script], cwd=project, env=environment, **options)


def extract_from(made: Path, project: Path, corpus: Path, *more: str) -> Built:
    paths = ["--input", str(made), "--obj-base-dir", str(project), "--output", str(corpus)]
    output = invoke(extract, "--unit", "program", *paths, *more)
    return Built(project, made, corpus, output)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A Makefile's build with everything that the linker resolves."""
    directory = tmp_path_factory.mktemp("programs")
    made = directory / "the compilers"
    invoke(compilers, "--unit", "program", "--output", str(made))
    project = write(directory / "project", {**SOURCES, "Makefile": MAKEFILE})
    # Built by another compiler before this build, and gone is its source.
    prebuilt = project / "prebuilt"
    prebuilt.mkdir()
    subprocess.run(["gcc", "-O2", "-fPIC", "-c", "old.c", "-o", "prebuilt/old.o"], cwd=project, check=True)
    subprocess.run(["/usr/bin/ar", "cr", "prebuilt/libold.a", "prebuilt/old.o"], cwd=project, check=True)
    compile_by(made, "make -s", project, check=True)
    return extract_from(made, project, directory / "corpus")


pytestmark = pytest.mark.toolchain


def test_each_program_and_shared_library_works_and_is_a_module(built: Built) -> None:
    names = {module.name for module in load_corpus(built.corpus).modules}
    assert names == {"program", "libapi.so", "user", "lib/dynamic", "whole", "static"}
    assert subprocess.run([built.project / "user"]).returncode == 0
    assert subprocess.run([built.project / "program"]).returncode == 4 - 1 + 3 + 23


def test_what_assembly_and_prebuilt_libraries_use_stays_visible(built: Built) -> None:
    assert built.visible("program") == {"main", "from_assembly", "from_old"}
    assert {"part", "from_archive"} <= built.local("program")
    assert "not bitcode" in built.output
    assert "fast.o, libold.a(old.o)" in built.output


def test_version_script_decides_what_a_shared_library_exports(built: Built) -> None:
    assert built.visible("libapi.so") == {"api", "api_2"}
    assert "internal" in built.local("libapi.so")


def test_rdynamic_exports_what_the_program_alone_does_not(built: Built) -> None:
    assert built.visible("user") == {"main"} and "hook" in built.local("user")
    assert built.visible("lib/dynamic") == {"main", "hook"}


def test_relocatable_link_of_bitcode_is_in_the_program(built: Built) -> None:
    assert built.visible("whole") == {"main"} and {"helper", "part"} <= built.local("whole")
    assert (built.project / "merged.o").read_bytes()[:2] == b"BC"


def test_arguments_are_those_of_the_link(built: Built) -> None:
    for name in ("program", "libapi.so", "user"):
        arguments = built.arguments(name)
        assert arguments[arguments.index("-mrelocation-model") + 1] == "pic"
        assert arguments[arguments.index("-triple") + 1] == "x86_64-pc-linux-gnu"
        assert [word for word in arguments if word.startswith("-O")] == ["-Oz"]
    arguments = built.arguments("static")
    assert arguments[arguments.index("-mrelocation-model") + 1] == "static"


def test_bitcode_is_not_optimized_and_has_the_level(built: Built) -> None:
    text = subprocess.run(
        [LLVM / "llvm-dis", built.corpus / "program.bc", "-o", "-"], capture_output=True, text=True, check=True
    ).stdout
    assert "minsize" in text and "alloca i32" in text and "optnone" not in text


def test_report_counts_functions_that_several_programs_have(built: Built) -> None:
    report = json.loads((built.corpus / "report.json").read_text())
    assert report["shared_functions"]["project"]["in_several_programs"] == 5  # main, part, not_used, helper, hook
    assert "several programs" in built.output


CHECKS = {
    "configure": "#!/bin/sh\nset -e\necho 'int main(void) { return 0; }' >conftest.c\n"
    "clang -O2 conftest.c -o conftest && ./conftest\n! clang -DX= -xc conftest.c -lno_such -o conftest 2>/dev/null\n"
    "clang -Wl,--version >/dev/null\nclang conftest.c -o /dev/null\nrm -f conftest*\n"
}


def test_checks_of_configure_are_not_programs(built: Built, tmp_path: Path) -> None:
    invoke(compilers, "--unit", "program", "--output", str(tmp_path / "oz"))
    project = write(tmp_path / "project", {**CHECKS, **SOURCES})
    script = "sh ./configure && clang part.c whole.c -o whole && clang second.c -o removed && rm removed"
    compile_by(tmp_path / "oz", f"set -e; {script}", project, check=True)
    extracted = extract_from(tmp_path / "oz", project, tmp_path / "corpus")
    assert [module.name for module in load_corpus(extracted.corpus).modules] == ["whole"]
    assert extracted.left() == {"removed": ("removed", "the linked file was moved or removed")}


CMAKE = """cmake_minimum_required(VERSION 3.20)
project(own LANGUAGES C CXX)
include(CheckFunctionExists)
check_function_exists(puts HAS_PUTS)
check_function_exists(no_such_function HAS_NO_SUCH_FUNCTION)
if(NOT HAS_PUTS OR HAS_NO_SUCH_FUNCTION)
  message(FATAL_ERROR "checks are wrong")
endif()
add_library(part STATIC part.c)
add_library(text SHARED text.cpp)
add_executable(program main.cpp)
target_link_libraries(program part text)
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
add_executable(second second.c)
"""
CMAKE_SOURCES = {
    "part.c": SOURCES["part.c"],
    "second.c": SOURCES["second.c"],
    "text.cpp": "#include <string>\nint size(int a) { return (int)std::to_string(a).size(); }\n",
    "main.cpp": '#include <vector>\nextern "C" int part(int);\nint size(int);\n'
    "int main(int n, char **) { std::vector<int> v; v.push_back(size(n)); return part(v[0]) - 3; }\n",
    "CMakeLists.txt": CMAKE,
}


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_cmake_builds_programs_with_its_own_settings(generator: str, tmp_path: Path) -> None:
    invoke(compilers, "--unit", "program", "--output", str(tmp_path / "oz"))
    project = write(tmp_path / "project", CMAKE_SOURCES)
    options = [f"-DCMAKE_C_COMPILER={tmp_path}/oz/clang", f"-DCMAKE_CXX_COMPILER={tmp_path}/oz/clang++"]
    configure = ["cmake", "-G", generator, "-S", str(project), "-B", str(project / "build"), *options]
    subprocess.run([*configure, "-DCMAKE_BUILD_TYPE=Release"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", project / "build"], check=True, capture_output=True)
    assert subprocess.run([project / "build" / "program"]).returncode == 0
    extracted = extract_from(tmp_path / "oz", project / "build", tmp_path / "corpus")
    assert {module.name for module in load_corpus(extracted.corpus).modules} == {"program", "second", "libtext.so"}
    assert extracted.left() == {}
    assert "part" in extracted.local("program")


def test_gnu_ar_without_a_plugin_serves_lld(built: Built, tmp_path: Path) -> None:
    script = (
        "clang -c archive.c part.c && /usr/bin/ar crS lib.a archive.o part.o 2>/dev/null\n"
        "echo 'int from_archive(int); int main(int n, char **a) { return from_archive(n); }' >m.c\n"
        "clang m.c lib.a -o m"
    )
    project = write(tmp_path / "project", SOURCES)
    compile_by(built.compilers, f"set -e\n{script}", project, check=True)
    assert subprocess.run([project / "m"]).returncode == 255


REPLAYED = (
    "assembly",
    "wrapped functions",
    "symbols of the linker",
    "dynamic list",
    "asm that names symbols",
    "attributes",
    "common symbols",
    "thread-local variables",
    "functions that differ in what they catch",
)


def test_compiled_modules_are_linked_to_the_programs(tmp_path: Path) -> None:
    """What the linker, native parts and asm refer to is in the modules, and visible."""
    invoke(compilers, "--unit", "program", "--output", str(tmp_path / "oz"))
    project = tmp_path / "project"
    project.mkdir()
    for name in REPLAYED:
        PROGRAMS[name].build(tmp_path / "oz", project / name)
    extracted = extract_from(tmp_path / "oz", project, tmp_path / "corpus")
    modules = {Path(module.name).parent.name: module for module in load_corpus(extracted.corpus).modules}
    assert set(modules) == set(REPLAYED) and extracted.left() == {}
    for name, module in modules.items():
        program, directory = PROGRAMS[name], project / name
        output = directory / "module.o"
        arguments = replay_arguments(module.arguments(), module.bitcode, output)
        subprocess.run([LLVM / "clang", *arguments], check=True)
        native = [source for source in program.sources if source.endswith(".s")]
        link = ["-fuse-ld=lld", "module.o", *native, *program.flags, "-o", "again"]
        subprocess.run([LLVM / "clang++", *link], cwd=directory, check=True)
        for file in ("program", "again"):
            ran = subprocess.run([directory / file], capture_output=True, text=True)
            assert (ran.returncode, ran.stdout) == (0, program.prints), (name, file)


FAULTS = """
clang -c main.c second.c part.c archive.c whole.c old.c
clang second.c part.c -o works
clang whole.o second.o part.o -o two_mains || true
clang main.o part.o -o unresolved || true
clang-22 -O2 -flto -c part.c -o newer.o && clang whole.o newer.o -o of_newer_llvm || true
head -c 900 part.o >truncated.o && clang whole.o truncated.o -o of_truncated || true
clang -c fast.s && clang -nostdlib -Wl,-efast -Wl,--unresolved-symbols=ignore-all fast.o -o assembly_only
ld -r whole.o fast.o -o mixed.o
clang mixed.o part.o -x c - -o with_mixed <<EOF
int from_assembly(int a) { return a; }
EOF
"""


def test_each_link_without_a_module_is_named_with_its_reason(tmp_path: Path) -> None:
    invoke(compilers, "--unit", "program", "--output", str(tmp_path / "oz"))
    project = write(tmp_path / "project", SOURCES)
    compile_by(tmp_path / "oz", FAULTS, project, capture_output=True)
    extracted = extract_from(tmp_path / "oz", project, tmp_path / "corpus")
    assert {module.name for module in load_corpus(extracted.corpus).modules} == {"works", "with_mixed"}
    left = extracted.left()
    assert {name: kind for name, (kind, _detail) in left.items()} == {
        "two_mains": "not_linked",
        "unresolved": "not_linked",
        "of_newer_llvm": "not_linked",
        "of_truncated": "not_linked",
        "assembly_only": "no_bitcode",
        "mixed.o": "relocatable",
    }
    assert "main" in left["two_mains"][1] and "second.o" in left["two_mains"][1]
    assert "undefined symbol" in left["unresolved"][1]
    assert "LLVM 22" in left["of_newer_llvm"][1]
    assert "truncated.o" in left["of_truncated"][1]


def test_link_that_needs_more_memory_than_allowed_is_left_out(tmp_path: Path) -> None:
    """An address space of a gibibyte is more than lld needs at its start, and less than this program's data."""
    invoke(compilers, "--unit", "program", "--memory-gib", "1", "--output", str(tmp_path / "oz"))
    project = write(tmp_path / "project", {"large.s": ".data\n.globl data\ndata: .fill 700000000\n", **SOURCES})
    script = "clang second.c -o second; clang -c large.s && clang second.c large.o -o large"
    assert compile_by(tmp_path / "oz", script, project, capture_output=True).returncode != 0
    extracted = extract_from(tmp_path / "oz", project, tmp_path / "corpus")
    assert [module.name for module in load_corpus(extracted.corpus).modules] == ["second"]
    kind, detail = extracted.left()["large"]
    assert kind == "not_linked" and "--memory-gib" in detail


def test_response_file_of_a_long_command_is_recorded(tmp_path: Path) -> None:
    invoke(compilers, "--unit", "program", "--output", str(tmp_path / "oz"))
    project = write(tmp_path / "project", SOURCES)
    long = " ".join(f"-Wl,-rpath,/{'x' * 200}/{number}" for number in range(700))
    script = f"clang -c whole.c part.c && clang whole.o part.o {long} -o 'a \"quoted\" name'"
    (project / "build").write_text(script)
    compile_by(tmp_path / "oz", "sh -e build", project, check=True)
    extracted = extract_from(tmp_path / "oz", project, tmp_path / "corpus")
    assert [module.name for module in load_corpus(extracted.corpus).modules] == ['a "quoted" name']
    (link,) = (tmp_path / "oz" / "links").iterdir()
    assert (link / "response").is_file()


def test_assembly_output_is_native(built: Built, tmp_path: Path) -> None:
    project = write(tmp_path / "project", SOURCES)
    command = [str(built.compilers / "clang"), "-S", "part.c", "-o", "part.s"]
    subprocess.run(command, cwd=project, check=True)
    assert "ret" in (project / "part.s").read_text() and "define" not in (project / "part.s").read_text()


def test_register_allocation_has_no_programs(tmp_path: Path) -> None:
    words = ["--unit", "program", "--problem", "regalloc", "--output", str(tmp_path / "o2")]
    done = CliRunner().invoke(compilers, words)
    assert done.exit_code != 0 and "--unit program" in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--input", "EMPTY"), "has no record of a link"),
        ((), "extract has no input"),
        (("--input", "EMPTY", "--thinlto-build", "local"), "--thinlto-build is not for --unit program"),
        (("--input", "EMPTY", "--input-type", "params"), "--input-type is not for --unit program"),
    ],
)
def test_wrong_inputs_are_named(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    words = [str(tmp_path / "empty") if word == "EMPTY" else word for word in arguments]
    done = CliRunner().invoke(extract, ["--unit", "program", *words, "--output", str(tmp_path / "corpus")])
    assert done.exit_code != 0 and message in re.sub(r"\s+", " ", done.output + str(done.exception))
    assert not (tmp_path / "corpus").exists()
