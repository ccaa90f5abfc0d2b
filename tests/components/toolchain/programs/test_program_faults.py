"""Programs of -Oz that full LTO compiles as one module do what they do by stock tools, and fail as they fail there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.inline_plan import PlannedModule, write_plan
from tests.components.toolchain.programs.linked_programs import PROGRAMS, Program, run
from tests.components.toolchain.programs.test_linker import toolchain

pytestmark = pytest.mark.toolchain
__all__ = ["toolchain"]

STOCK = Path("/usr/lib/llvm-19/bin")
KEEP_SMALLER = "-Wl,-mllvm,-mlgo-keep-smaller"


def outcome(program: Program, root: Path, directory: Path, *more: str) -> tuple[str, str]:
    """Build and run; return what the link and the program print."""
    linked = program.build(root, directory, *more)
    assert linked.returncode == 0, linked.stderr
    ran = subprocess.run([directory / program.name], cwd=directory, capture_output=True, text=True, timeout=20)
    assert ran.returncode == 0, ran
    return linked.stderr, ran.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_does_the_same_as_by_stock_tools(toolchain: Path, tmp_path: Path, name: str) -> None:
    program = PROGRAMS[name]
    for directory, root, flags in (
        ("stock", STOCK, []),
        ("ours", toolchain / "bin", []),
        ("smaller", toolchain / "bin", [KEEP_SMALLER]),
    ):
        assert outcome(program, root, tmp_path / directory, *flags) == ("", program.prints)
    assert not list(tmp_path.glob("*/*.mlgo-*"))


def test_bitcode_of_an_older_llvm_is_linked(toolchain: Path, tmp_path: Path) -> None:
    """clang-16.bc is clang 16's object, -Oz -flto, of

    int from_new(int);
    static int twice(int x) { return 2 * x; }
    __attribute__((noinline)) int equal_a(int x) { return twice(x) * from_new(x); }
    __attribute__((noinline)) int equal_b(int x) { return twice(x) * from_new(x); }
    int old(int x) { return equal_a(x) + equal_b(x + 1); }
    """
    main = "#include <stdio.h>\nint old(int);\nint from_new(int x) { return x + 1; }\n"
    main += 'int main(void) { printf("%d", old(3)); return 0; }\n'
    program = Program({"main.c": main}, "64", (str(Path(__file__).with_name("clang-16.bc")),))
    assert outcome(program, STOCK, tmp_path / "stock") == ("", program.prints)
    assert outcome(program, toolchain / "bin", tmp_path / "ours", KEEP_SMALLER) == ("", program.prints)


def test_functions_that_cannot_be_called_are_not_folded(toolchain: Path, tmp_path: Path) -> None:
    """Neither an equal handler of interrupts nor an equal naked function can be a call of the other."""
    body = "counter += count(f->ip) + count(f->cs) * count(3) + count(f->flags);"
    handler = f"__attribute__((interrupt)) void handle{{}}(struct frame *f) {{{{ {body} }}}}\n"
    naked = '__attribute__((naked)) int bare{}(int x) {{ asm("leal 1(%rdi), %eax\\nret"); }}\n'
    (tmp_path / "handlers.c").write_text(
        "struct frame { unsigned long ip, cs, flags, sp, ss; };\nunsigned long counter, count(int);\n"
        + "".join(text.format(i) for text in (handler, naked) for i in range(2))
    )
    clang = toolchain / "bin" / "clang"
    flags = ["-Oz", "-mgeneral-regs-only", "-mno-red-zone", "-ffreestanding", "-fno-pic", "-mllvm", "-mlgo-fold=1"]
    run(clang, *flags, "-c", "handlers.c", directory=tmp_path)
    lines = run("llvm-objdump-19", "-d", "--no-show-raw-insn", "handlers.o", directory=tmp_path).splitlines()
    assert sum("iretq" in line for line in lines) == 2 and sum("leal" in line for line in lines) == 2


EQUAL = "(int x) { return (getpid() > 0) + x * (getpid() > 0 ? 5 : 6); }\n"
LIBRARY = {
    "library.c": "#include <unistd.h>\n"
    + "".join(f"int {name}{EQUAL}" for name in ("first", "second", "internal"))
    + "int old_name(int x) { return internal(x) - 1; }\n",
    "exports": "V1 { global: first; second; local: *; };\n",
}
USER = {
    "main.c": "#include <stdio.h>\nint first(int x) { return -x; }\nint second(int);\n"
    'int main(void) { printf("%d", second(2)); return 0; }\n'
}


def exported(library: Path) -> list[str]:
    lines = run("llvm-nm-19", "-D", "--defined-only", library.name, directory=library.parent).splitlines()
    return sorted(line.split(maxsplit=1)[1] for line in lines)


@pytest.mark.parametrize("more", [[], [KEEP_SMALLER]], ids=["heuristic", "smaller"])
@pytest.mark.parametrize("script", [[], ["-Wl,--version-script=exports"]], ids=["all", "version script"])
def test_shared_library_exports_the_same(toolchain: Path, tmp_path: Path, script: list[str], more: list[str]) -> None:
    """The program has a `first` of its own, which is not called in place of what is equal to the library's."""
    library = Program(LIBRARY, "", ("-shared", "-fPIC", *script), name="liblibrary.so")
    exports = []
    for directory, root, flags in ((tmp_path / "stock", STOCK, []), (tmp_path / "ours", toolchain / "bin", more)):
        linked = library.build(root, directory, *flags)
        assert (linked.returncode, linked.stderr) == (0, "")
        exports.append(exported(directory / library.name))
        user = Program(USER, "11", (str(directory / library.name), f"-Wl,-rpath,{directory}"))
        assert outcome(user, root, directory / "user", *flags) == ("", user.prints)
    assert exports[0] == exports[1] != []


@pytest.mark.parametrize("more", [[], [KEEP_SMALLER]], ids=["heuristic", "smaller"])
def test_relocatable_link_is_an_object_of_all_functions(toolchain: Path, tmp_path: Path, more: list[str]) -> None:
    part = Program(
        {**LIBRARY, "more.c": "int old_name(int);\nint more(int x) { return old_name(x); }\n"},
        "",
        ("-r",),
        name="part.o",
    )
    main = (
        "#include <stdio.h>\nint second(int), more(int);\n"
        'int main(void) { printf("%d", second(2) + more(4)); return 0; }\n'
    )
    for directory, root, flags in ((tmp_path / "stock", STOCK, []), (tmp_path / "ours", toolchain / "bin", more)):
        linked = part.build(root, directory, *flags)
        assert (linked.returncode, linked.stderr) == (0, "")
        names = run("llvm-nm-19", "--defined-only", "-g", "-j", "part.o", directory=directory).split()
        assert set(names) == {"first", "second", "internal", "old_name", "more"}
        user = Program({"main.c": main}, "31", (str(directory / "part.o"), "-Wl,--icf=none"))
        assert outcome(user, root, directory / "user", *flags) == ("", user.prints)


MAIN = "int part(int);\nint main(void) { return part(1); }\n"
PART = "int part(int x) { return x; }\n"
FAILING = {
    "two definitions of main": Program(
        {"main.c": MAIN, "second.c": PART + "int main(void) { return 2; }\n"}, "duplicate symbol: main"
    ),
    "undefined symbol": Program({"main.c": MAIN}, "undefined symbol: part"),
    "undefined symbol of a native object": Program(
        {"main.c": MAIN, "native.c": "int missing(int);\nint part(int x) { return missing(x); }\n"},
        "undefined symbol: missing",
    ),
    "undefined symbol in asm": Program(
        {"main.c": MAIN, "part.c": PART + 'asm(".globl f\\nf: jmp missing");\n'},
        "undefined symbol: missing",
        ("-Wl,-u,f",),
    ),
    "wrong asm": Program(
        {"main.c": MAIN, "part.c": 'int part(int x) { asm("no_such_instruction"); return x; }\n'},
        "invalid instruction mnemonic",
    ),
    "damaged bitcode": Program(
        {"main.c": MAIN, "part": PART},
        "part.o",
        ("part.o",),
        before="clang-19 -Oz -flto -x c -c part -o p; head -c 900 p >part.o",
    ),
    "changed bitcode": Program(
        {"main.c": MAIN, "part": PART},
        "can't skip to bit",
        ("part.o",),
        before="clang-19 -Oz -flto -x c -c part -o part.o\n"
        "printf 'XXXXXXXXXXXXXXXXXXXXXXXX' | dd of=part.o bs=1 seek=700 conv=notrunc status=none",
    ),
    "no bitcode and no object": Program({"main.c": MAIN}, "part.o", ("part.o",), before="echo text >part.o"),
    "bitcode of a newer LLVM": Program(
        {"main.c": MAIN, "part": PART},
        "Invalid summary version",
        ("part.o",),
        before="clang-22 -Oz -flto -x c -c part -o part.o",
    ),
    "missing export": Program(
        {"main.c": MAIN, "part.c": PART, "exports": "{ global: no_such; };\n"},
        "no_such",
        ("-shared", "-fPIC", "-Wl,--version-script=exports", "-Wl,--no-undefined-version"),
    ),
    "output that cannot be written": Program(
        {"main.c": MAIN, "part.c": PART}, "cannot open output file", name="no_such/program"
    ),
}


def errors(stderr: str) -> list[str]:
    """Return the linker's messages without the names of temporary files."""
    return [re.sub(r"\S*/", "", line) for line in stderr.splitlines() if "error:" in line]


@pytest.mark.parametrize("name", FAILING)
def test_link_that_fails_says_what_stock_tools_say(toolchain: Path, tmp_path: Path, name: str) -> None:
    program = FAILING[name]
    said = []
    for directory, root, flags in (
        ("stock", STOCK, []),
        ("ours", toolchain / "bin", []),
        ("smaller", toolchain / "bin", [KEEP_SMALLER]),
    ):
        linked = program.build(root, tmp_path / directory, *flags)
        assert linked.returncode == 1 and "PLEASE submit a bug report" not in linked.stderr
        said.append(errors(linked.stderr))
    assert program.prints in "".join(said[0])
    assert said[0] == said[1] == said[2]
    left = [{path.name for path in (tmp_path / name).iterdir()} for name in ("stock", "ours", "smaller")]
    assert left[0] == left[1] == left[2] and program.name not in left[0]


def test_linkers_share_no_objects_in_the_cache_of_thinlto(toolchain: Path, tmp_path: Path) -> None:
    """Their policies and passes differ, LLVM's version and the options do not."""
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    linker, other = toolchain / "bin" / "ld.lld", tmp_path / "ld.lld"
    other.write_bytes(linker.read_bytes() + b"other")
    other.chmod(0o755)
    flags = ["-Oz", "-flto=thin", "-Wl,--thinlto-cache-dir=cache", "main.c", "-o", "main"]
    objects = []
    for path in (STOCK / "ld.lld", linker, linker, other):
        run(STOCK / "clang", f"--ld-path={path}", *flags, directory=tmp_path)
        objects.append(len(list((tmp_path / "cache").glob("llvmcache-*"))))
    assert objects == [1, 2, 2, 3]
    # LLVM's key has the path of a plan, and not what is in it.
    for decisions in ([], [PlannedModule("main.c", ForcedDecisions.of({}))]):
        write_plan(tmp_path / "inline.plan", decisions, 19)
        plan = "-Wl,-mllvm,-mlgo-inline-plan=inline.plan"
        run(STOCK / "clang", f"--ld-path={linker}", *flags, plan, directory=tmp_path)
        objects.append(len(list((tmp_path / "cache").glob("llvmcache-*"))))
    assert objects[-2:] == [4, 5]


def test_links_that_differ_share_no_objects_in_the_cache_of_thinlto(toolchain: Path, tmp_path: Path) -> None:
    """In whatever way an option is given; links that are equal but for what does not change code share theirs."""
    (tmp_path / "full.c").write_text("int thin(int);\nint main(void) { return thin(0); }\n")
    (tmp_path / "thin.c").write_text("int thin(int x) { return x; }\n")
    clang = toolchain / "bin" / "clang"
    run(clang, "-Oz", "-flto", "-c", "full.c", directory=tmp_path)
    run(clang, "-Oz", "-flto=thin", "-c", "thin.c", directory=tmp_path)
    (tmp_path / "response").write_text('-plugin-opt=-mlgo-outline=0 "-mllvm" "-mlgo-fold=0"')

    def objects(*flags: str) -> int:
        cached = ["-Wl,--thinlto-cache-dir=cache", "full.o", "thin.o", "-o", "program"]
        run(clang, "-Oz", "-flto", *cached, *flags, directory=tmp_path)
        return len(list((tmp_path / "cache").glob("llvmcache-*")))

    keep = "-Wl,-mllvm,-mlgo-variants="
    assert objects() == objects("-Wl,--threads=1") == objects("-Wl,--icf=all", "-Wl,--thinlto-jobs=2") == 1
    different = [
        "-Wl,-mllvm,-mlgo-fold=0",
        "-Wl,-mllvm,-mlgo-ranges=0",
        "-Wl,-mllvm,-mlgo-outline=0",
        "-Wl,-plugin-opt=-mlgo-outline=0",
        "-Wl,--plugin-opt=-mlgo-outline-everywhere",
        "-Wl,-mllvm,-enable-ml-inliner=default",
        "-Wl,@response",
    ]
    for number, flag in enumerate(different):
        assert objects(flag) == objects(flag) == number + 2, flag
    before = objects()
    # The variants of a link share the objects: they are variants of the program.
    assert objects(f"{keep}heuristic:policy") == before + 1
    assert objects(f"{keep}policy:heuristic") == before + 2  # the option is another
    assert objects(f"{keep}heuristic:policy") == before + 2
