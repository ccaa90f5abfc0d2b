"""What the user's compiler and linker do differently is found in what a build recorded and linked."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from components.core.projects.compiler_scripts import write_compilers
from components.shrink.differences.ignored import dropped_meaning, ignored_attributes, ignored_options
from components.shrink.differences.links import differing_choices, mixed_instructions, replaced_functions
from components.shrink.differences.records import read_readers
from components.shrink.rows import C_DEFAULTS
from tests.components.shrink.conftest import CLANG, NM, Project
from tests.support.commands import run_command


def test_attributes_and_pragmas_that_clang_ignores_are_found_in_all_forms(project: Project) -> None:
    project.write(
        order__h='struct __attribute__((packed, scalar_storage_order("big-endian"))) h { int a; };\n',
        deep__h='#include "order.h"\n',
        a__c='#pragma GCC diagnostic ignored "-Wattributes"\n#include "deep.h"\nint a(struct h *p) { return p->a; }\n',
        b__c="""\
#define OPT(x) __attribute__((noinline, x))
#define KEEP optimize
OPT(KEEP("O0")) int b(void) { return 1; }
""",
        c__cc="""\
[[gnu::noinline, gnu::optimize("wrapv")]] int c() { return 1; }
[[using gnu: optimize("trapv")]] int d();
""",
        e__c='#pragma GCC optimize ("no-strict-aliasing")\nint e(void) { return 1; }\n',
        f__c='_Pragma("scalar_storage_order big-endian")\nstruct f { int a; };\n',
        g__c="SWAPPED struct g { int a; };\n",
        h__c="extern int h(int) __attribute__((__simd__));\n",
        i__c="int i(void) { return 1; }\n",
        swapped__inc='struct __attribute__((__scalar_storage_order__("big-endian"))) i { int a; };\n',
    )
    project.run(
        "gcc -w -c a.c b.c e.c f.c h.c; g++ -c c.cc; gcc -include swapped.inc -c i.c;"
        """gcc -c g.c '-DSWAPPED=__attribute__((scalar_storage_order("big-endian")))' 2>/dev/null"""
    )
    found = ignored_attributes(project.calls(), CLANG, project.root)
    places = sorted(text.rpartition(" at ")[2] for text in found)
    assert places == sorted(
        ["./order.h:1", "b.c:3", "c.cc:1", "c.cc:2", "e.c:1", "f.c:1", "g.c:1", "h.c:1", "./swapped.inc:1"]
    ), found
    assert any('optimize("O0")' in text and text.endswith("b.c:3") for text in found)


def test_attributes_that_are_about_speed_or_that_clang_does_not_see_are_no_difference(project: Project) -> None:
    project.write(
        a__c="""
#define NONE
#ifndef __clang__
__attribute__((optimize("O0"))) int gcc_only(void);
#endif
#if defined(__has_attribute) && __has_attribute(scalar_storage_order)
struct __attribute__((scalar_storage_order("big-endian"))) s { int a; };
#endif
#pragma GCC optimize ("O3,unroll-loops")
#pragma scalar_storage_order default
__attribute__((optimize(2), noipa, noclone)) int fast(int optimize) { return optimize; }
__attribute__((optimize("-O3", "-ftree-vectorize"))) int faster(void) { return fast(1); }
const char *text(void) { return "__attribute__((optimize(\\"O0\\")))"; }
""",
        b__cc="struct s { int a[3]; int optimize(int); }; int b(s *t) { return t->a[t->optimize(0)]; }\n",
        conftest__c='__attribute__((optimize("O0"))) int checked(void);\n',
    )
    project.run("gcc -w -c a.c; g++ -c b.cc; gcc -w -c conftest.c")
    assert ignored_attributes(project.calls(), CLANG, project.root) == []


def test_options_that_clang_ignores_are_found_where_they_are_in_effect(project: Project) -> None:
    project.write(a__c="int a;\n", b__c="int b;\n", response__txt="-fnon-call-exceptions -O2\n")
    project.run(
        "gcc -w -c a.c -funsigned-bitfields -fsigned-bitfields; gcc -w -c b.c -funsigned-bitfields;"
        "gcc -c a.c @response.txt; rm response.txt; gcc -w -c a.c -O2 -fgcse -fno-ipa-cp -fsigned-bitfields;"
        "gcc -w -c b.c -fsingle-precision-constant; gcc -w -c conftest.c -fstack-check || :"
    )
    found = ignored_options(project.calls())
    assert sorted(found) == ["-fnon-call-exceptions", "-fsingle-precision-constant", "-funsigned-bitfields"]
    assert "b.c" in found["-funsigned-bitfields"]


@pytest.mark.parametrize(
    "option",
    [
        *("-fexec-charset=ISO-8859-1", "-fsso-struct=big-endian", "-finput-charset=latin1", "-fleading-underscore"),
        *("-ffixed-r15", "-mindirect-branch=thunk", "-fno-toplevel-reorder", "-Wl,--default-symver"),
        *("-fno-signed-bitfields", "-fwrapv-pointer", "-Wl,--dynamic-list-data", "-fno-enforce-eh-specs"),
        "-fkeep-gc-roots-live",
    ],
)
def test_a_dropped_option_that_means_something_is_a_difference(option: str) -> None:
    assert option in dropped_meaning(["-fgcse-lm", option])[0]


def test_dropped_options_about_speed_and_defaults_are_no_difference() -> None:
    assert dropped_meaning(["-ftree-loop-vectorize", "-fexec-charset=utf-8", "-fsso-struct=little-endian"]) == []


ORDERS = {
    "liba.a b.o libb.a": True,
    "b.o liba.a libb.a": False,
    "libb.a b.o liba.a": True,
    "libx.a b.o liba.a libb.a": False,
    "liba.a libcalls.a libb.a": True,
    "libcalls.a liba.a libb.a": False,
    "-Wl,--start-group liba.a libcalls.a -Wl,--end-group libb.a": False,
    "-Wl,--start-group liba.a libb.a -Wl,--end-group b.o libb.a": True,
    "-L. -la b.o -lb": True,
    "-Wl,--whole-archive liba.a -Wl,--no-whole-archive b.o libb.a": False,
    "liba.a b.o -L. -lshared": True,
    "b.o liba.a -L. -lshared": False,
    "fooa.o b.o libb.a": False,
    "libputs.a b.o libb.a": True,
    "b.o libb.a libputs.a": False,
}


def test_archives_from_which_the_linkers_take_different_members_are_found(project: Project) -> None:
    project.write(
        main__c="void b(void);\nint main(void) { b(); return 0; }\n",
        b__c="void foo(void);\nvoid b(void) { foo(); }\n",
        x__c="int x;\n",
        puts__c='int printf(const char *, ...);\nint puts(const char *s) { return printf("own %s\\n", s); }\n',
        **{f"foo{n}__c": f'#include <stdio.h>\nvoid foo(void) {{ puts("foo of {n}"); }}\n' for n in ("a", "b", "s")},
    )
    project.run(
        "gcc -fPIC -c main.c b.c x.c puts.c fooa.c foob.c foos.c; gcc -shared foos.o -o libshared.so;"
        "for n in a b; do ar rcs lib$n.a foo$n.o; done;"
        "ar rcs libx.a x.o; ar rcs libcalls.a b.o; ar rcs libputs.a puts.o"
    )
    # The scripts record the links of lld; the installed gcc does not.
    links = "".join(
        f"/usr/bin/gcc main.o {inputs} -o bfd{number} -Wl,-rpath,$PWD;"
        f"gcc -fuse-ld=lld main.o {inputs} -o lld{number} -Wl,-rpath,$PWD;"
        for number, inputs in enumerate(ORDERS)
    )
    project.run(links)
    choices = differing_choices(project.calls(), CLANG, NM, project.root)
    found = {choice.output for choice in choices}
    wrong = {}
    for number, (inputs, differs) in enumerate(ORDERS.items()):
        printed = [subprocess.check_output([project.root / f"{name}{number}"], text=True) for name in ("bfd", "lld")]
        if not (f"lld{number}" in found) == (printed[0] != printed[1]) == differs:
            wrong[inputs] = (found, printed)
    assert not wrong
    assert "libb.a[foob.o]" in choices[0].text


def test_a_function_of_several_files_that_is_linked_from_one_for_other_processors_is_found(project: Project) -> None:
    project.write(
        t__h="template <class T> __attribute__((noinline)) T mix(T a) { return a * a + 1; }\n",
        fast__cc='#include "t.h"\nfloat fast(float x) { return mix(x); }\n',
        main__cc='#include "t.h"\nfloat fast(float);\nint main(int c, char **) { return mix(c * 1.f) > fast(c); }\n',
    )
    project.run(
        "g++ -flto -c main.cc; g++ -flto -c -mavx2 fast.cc; ar rc libfast.a fast.o;"
        "g++ -flto -fuse-ld=lld fast.o main.o -o first; g++ -flto -fuse-ld=lld main.o fast.o -o last;"
        "g++ -flto -fuse-ld=lld main.o libfast.a -o archive"
    )
    (choice,) = differing_choices(project.calls(), CLANG, NM, project.root)
    assert "-mavx2" in choice.text
    assert choice.foreign and choice.output == "first"
    calls = project.calls()
    assert mixed_instructions(calls).startswith("fast.o") and "-mavx2" in mixed_instructions(calls)
    assert not mixed_instructions(call for call in calls if call.object.endswith("fast.o"))


@pytest.mark.parametrize(
    ("script", "recorded"),
    [
        (
            "gcc -c -flto a.c; gcc -c a.c -o elf.o; for tool in objdump readelf size nm; do $tool elf.o || :; done;"
            "objdump -t a.o || :; readelf -S a.o || :; nm a.o; rm -f x.a; ar rc x.a a.o; size x.a || :",
            ["objdump -t a.o", "readelf -S a.o", "size x.a"],
        ),
        # Whatever they and the objects are called.
        (
            "gcc -c -flto a.c -o a.plug; gcc -c a.c -o elf.plug; readelf -s elf.plug >elf.txt;"
            "readelf -s a.plug || :; llvm-objdump-19 -t a.plug || :; llvm-size-19 elf.plug",
            ["readelf -s a.plug", "llvm-objdump-19 -t a.plug"],
        ),
    ],
)
def test_tools_of_elf_that_read_objects_of_lto_are_recorded(project: Project, script: str, recorded: list[str]) -> None:
    project.write(a__c="int cmd_a(void) { return 1; }\n")
    project.run(script)
    assert read_readers(project.records) == recorded


def test_sections_that_are_lost_or_smaller_and_files_of_the_copy_are_found(project: Project) -> None:
    project.write(
        a__c="""
#include <stdio.h>
static const int first __attribute__((used, section(".table"))) = 1;
static const int second __attribute__((used, section(".table"))) = 2;
const char kept[] __attribute__((section(".kept"))) = "kept";
static const char version[] __attribute__((used)) = "version 1";
__attribute__((__unused__, __used__)) static const int *hooks[2] = {&first};
static const char retained[] __attribute__((used, retain)) = "retained";
static const char message[] __attribute__((used, section("messages"))) = "message";
__attribute__((noinline, section("text_env"))) int code(int n) { return n * 3 / 7; }
int main(int n, char **words) { puts(DIRECTORY "/data"); puts(SOURCE); return code(n) == kept[n]; }
"""
    )
    options = f"a.c -DDIRECTORY='\"{project.root}\"' -DSOURCE='\"{project.root}/a.c\"' -ffunction-sections"
    own, new = f"-O0 -fuse-ld=bfd {options}", f"-Oz -fuse-ld=lld -Wl,--gc-sections {options}"
    found = project.build(f"gcc {own} -o $OUT/prog", f"gcc {new} -o $OUT/prog")
    assert "section messages" in found.refusal
    gone, names = found.notes
    assert "first and 4" in gone and "such as data" in names


def test_scripts_of_the_linker_that_name_objects_are_found_with_lto(project: Project) -> None:
    project.write(
        a__c="int main(void) { return 0; }\n",
        names__ld="SECTIONS { .first : { KEEP(*a.o(.text.first)) /* b.o(.text) */ } } INSERT AFTER .data;\n",
        plain__ld="SECTIONS { .second : { KEEP(*(SORT(.second.*))) } } INSERT AFTER .data; /* *c.o(.text) */\n",
    )
    link = "gcc {} a.c -Wl,-T,names.ld -Wl,-Tplain.ld -o $OUT/prog"
    assert "names.ld" in project.build(link.format(""), link.format("-fuse-ld=lld"), lto=True).refusal


def test_functions_of_libraries_that_a_program_replaces_are_kept_in_c_and_found_in_cxx(project: Project) -> None:
    write_compilers(
        project.tools, CLANG, ["-O2", "-Qunused-arguments"], records=str(project.records), default_flags=C_DEFAULTS
    )
    project.write(
        lib__c="int limit(void) { return 10; }\nint api(void) { return limit(); }\n",
        main__c="int api(void);\nint limit(void) { return 1000; }\nint main(void) { return api() != 1000; }\n",
        main__cc="int api();\nint limit() { return 1000; }\nint main() { return api() != 1000; }\n",
    )
    project.run(
        "mkdir own; for driver in gcc g++; do"
        " case $driver in gcc) main=main.c; language=c ;; *) main=main.cc; language=c++ ;; esac;"
        " /usr/bin/$driver -x $language -O2 -fPIC -shared lib.c -o own/libx.so;"
        " /usr/bin/$driver $main -o own/$driver -Lown -lx; $driver -fPIC -x $language -c lib.c -o $driver.o;"
        " $driver -shared $driver.o -o libx.so; $driver $main -o $driver -L. -lx -Wl,-rpath,$PWD;"
        " [ $driver = g++ ] || ./$driver; done"
    )
    calls = [call for call in project.calls() if call.program == "g++"]
    (replaced,) = replaced_functions(calls, project.root / "own", NM, project.root)
    assert replaced.startswith("g++ and libx.so") and "_Z5limitv" in replaced


@pytest.mark.toolchain
def test_a_build_that_differs_is_not_delivered_and_what_is_mended_is(pretrained_release: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    (source / "tables").mkdir(parents=True)
    files = {
        "lib.c": """
int limit(void) { return 10; }
int api(void) { return limit(); }
int first(void) __attribute__((alias("limit")));
int second(void) __attribute__((alias("first")));
""",
        "main.c": """
#include <stdio.h>
#include "size.h"
int api(void);
int limit(void) { return 1000; }
int main(void) { FILE *f = fopen(DATA "/x", "r"); return f ? fclose(f) : printf("%d %d\\n", api(), SIZE) < 0; }
""",
        "table.c": "int table[3] = {1, 2, 3};\n",
        "Makefile": """
CFLAGS = -O2 -fPIC $(MORE)
all: prog
prog: main.c libx.so size.h
\tgcc $(CFLAGS) -DDATA='"$(CURDIR)/tables"' main.c -o $@ -L. -lx -Wl,-rpath,'$$ORIGIN'
size.h: table.o
\techo "#define SIZE 0$$(objdump -t table.o | awk '$$6 == "table" {print "x" $$5}')" > $@
libx.so: lib.c
\tgcc $(CFLAGS) -shared lib.c -o $@
""",
    }
    for name, text in files.items():
        (source / name).write_text(text)
    options = ["--source", source, "--release-toolchain", pretrained_release, "--output", out, "--no-compare-stock"]
    options.append("--no-other-compilers")

    def shrink(command: str) -> dict[str, Any]:
        done = run_command("components.shrink", *options, "--", "sh", "-c", command, timeout=300)
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads((out / "shrink.json").read_text())
        return result

    shrunk = shrink("make")
    assert shrunk["chosen"] == "objects"
    failures = {build["name"]: build["failure"] for build in shrunk["builds"]}
    assert "table.o" in failures["program"]
    assert any("tables" in note for note in shrunk["notes"])
    assert subprocess.check_output([out / "files/prog"], text=True) == "1000 12\n"

    shrunk = shrink("make MORE=-funsigned-bitfields")
    assert shrunk["chosen"] == "own" and "clang ignores -funsigned-bitfields (" in shrunk["why"]
