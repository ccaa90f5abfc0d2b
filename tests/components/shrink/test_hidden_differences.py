"""Differences of the user's compiler and linker are found where builds hide them: names, places, order, other tools."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from components.core.projects.compiler_scripts import write_editors
from components.shrink.builds.build import BuiltFiles
from components.shrink.differences.configuration import defined_names
from components.shrink.differences.find import FinishedBuild, find_differences
from components.shrink.differences.ignored import ignored_attributes, ignored_options
from components.shrink.differences.linked_files import made_by_clang
from components.shrink.differences.links import differing_choices, replaced_functions
from components.shrink.differences.records import read_linker_calls, read_readers
from components.shrink.notes import notes_on
from components.shrink.rows import OBJECTS, PROGRAM
from tests.components.shrink.conftest import CLANG, NM, Project

SWAPPED = 'struct __attribute__((scalar_storage_order("big-endian"))) swapped { int a; };\n'
LINK = "-fuse-ld=lld -Wl,--gc-sections -ffunction-sections -fdata-sections -Oz"


def attributes(project: Project) -> list[str]:
    return ignored_attributes(project.calls(), CLANG, project.root)


def test_names_of_a_project_may_be_like_those_of_checks(project: Project) -> None:
    project.write(pyconftest__c=SWAPPED, cmTC_table__c=SWAPPED, conftest__c=SWAPPED, conftest2__c=SWAPPED)
    project.run("gcc -w -c pyconftest.c; gcc -w -c cmTC_table.c; gcc -w -c conftest.c; gcc -w -c -oa.o conftest2.c")
    assert sorted(text.rpartition(" at ")[2] for text in attributes(project)) == ["cmTC_table.c:1", "pyconftest.c:1"]


def test_sources_that_are_gone_or_come_from_a_pipe_are_looked_into(project: Project) -> None:
    project.write(piped__c=SWAPPED, list__txt="a.c\n", a__c="int a;\n")
    project.run(
        f"gcc -w -x c -c -o piped.o - <piped.c; echo '{SWAPPED}' >made.c; gcc -w -c made.c; rm made.c;"
        f" echo '{SWAPPED}' >again.c; gcc -w -c again.c; echo 'int again;' >again.c;"
        " while read -r name; do gcc -S -o - $name; done <list.txt | grep -q a"
    )
    places = sorted(text.rpartition(" at ")[2] for text in attributes(project))
    assert places == ["<stdin>:1", "again.c:1", "made.c:1"]
    assert not (project.root / "made.c").exists() and (project.root / "again.c").read_text() == "int again;\n"
    project.run("gcc -w -fnon-call-exceptions -x c -c -o piped.o - <piped.c")
    assert "-fnon-call-exceptions" in ignored_options(project.calls())


def test_attributes_and_pragmas_with_some_arguments_are_ignored(project: Project) -> None:
    project.write(
        a__c="#define DO(x) _Pragma(#x)\nDO(scalar_storage_order big-endian)\nstruct a { int a; };\n",
        b__c="extern int w __attribute__((aligned(64)));\nint v __attribute__((copy(w)));\n",
        c__c='#pragma GCC target ("fpmath=387")\ndouble c(double x) { return x * 3; }\n',
        d__c='__attribute__((target("general-regs-only"))) int d(int x) { return x; }\n',
        e__c="""
#pragma GCC target ("sse4.2,popcnt")
int e(int x) { return x; }
extern __typeof(e) f __attribute__((alias("e"), copy(e)));
__attribute__((target("avx2"))) int copy(int target) { return target; }
""",
    )
    project.run("gcc -w -c a.c b.c c.c d.c e.c")
    assert sorted(text.rpartition(" at ")[2] for text in attributes(project)) == ["a.c:2", "b.c:2", "c.c:1", "d.c:1"]


@pytest.mark.parametrize(
    "words",
    [
        "-Wl,-z,now,--audit=libaudit.so",
        "-Xlinker --dynamic-list-data",
        "-Wl,-O1,-z,ibt",
        "-Xlinker -z -Xlinker ibt",
        "-z unique-symbol",
        "-fsignaling-nans",
        "-fkeep-inline-functions",
        "-fno-merge-constants",
    ],
)
def test_options_of_linkers_in_all_forms_are_found(project: Project, words: str) -> None:
    project.run(f"clang {words} -o prog main.o 2>/dev/null || :")
    assert len(ignored_options(project.calls())) == 1


def test_objects_of_gccs_lto_that_are_changed_are_recorded(project: Project) -> None:
    write_editors(project.tools, os.environ["PATH"], str(project.records))
    project.write(a__c="int hook(void);\nint a(void) { return hook(); }\n")
    project.run(
        "/usr/bin/gcc -flto -ffat-lto-objects -c a.c; /usr/bin/gcc -c a.c -o elf.o; readelf -s a.o >a.txt;"
        "for name in a elf; do objcopy --redefine-sym hook=other $name.o; done"
    )
    assert read_readers(project.records) == ["objcopy --redefine-sym hook=other a.o"]


def test_members_of_one_name_are_members_of_their_own(project: Project) -> None:
    project.write(
        main__c="int one(void), need(void);\nint main(void) { return one() + need(); }\n",
        one__c="int one(void) { return 1; }\n",
        two__c="int two(void) { return 2; }\n",
        late__c="int two(void) { return 3; }\n",
        need__c="int two(void);\nint need(void) { return two(); }\n",
    )
    project.run(
        "mkdir 1 2; gcc -c one.c -o '1/x y.o'; gcc -c two.c -o '2/x y.o'; gcc -c main.c late.c need.c;"
        "ar qc liba.a '1/x y.o' '2/x y.o'; ar rc libn.a need.o; ar rc libb.a late.o;"
        "gcc -fuse-ld=lld main.o liba.a libn.a libb.a -o prog"
    )
    (choice,) = differing_choices(project.calls(), CLANG, NM, project.root)
    assert choice.text.index("libb.a[late.o]") < choice.text.index("liba.a[x y.o]")


def test_archives_define_common_symbols(project: Project) -> None:
    """The rows have lld's option for it."""
    option = "-Wl,--fortran-common"
    assert all(option in row.link_flags for row in (PROGRAM, OBJECTS))
    project.write(
        main__c="int x;\nint main(void) { return x; }\n",
        one__c="int x = 5;\nint one;\n",
        two__c="int x = 6;\nint two;\n",
    )
    project.run("gcc -fcommon -c main.c one.c two.c; for n in one two; do ar rc lib$n.a $n.o; done")
    for inputs, status in (("main.o libone.a libtwo.a", 5), ("libtwo.a main.o libone.a", 5), ("main.o", 0)):
        project.run(
            f"rm -f ../tools/records/*; gcc -fuse-ld=lld {option} {inputs} -o prog; /usr/bin/gcc {inputs} -o own"
        )
        found = differing_choices(project.calls(), CLANG, NM, project.root)
        assert subprocess.run([project.root / "own"]).returncode == status and not found
        assert subprocess.run([project.root / "prog"]).returncode == status


def test_links_by_the_linkers_own_name_are_followed(project: Project) -> None:
    project.write(
        main__c="int need(void);\nint main(void) { return need(); }\n",
        need__c="int v(void);\nint need(void) { return v(); }\n",
        v1__c="int v(void) { return 1; }\n",
        v2__c="int v(void) { return 2; }\n",
        order__ld="SECTIONS { tab : { KEEP(main.o(tab)) } .text : { *(.text*) } }\n",
    )
    project.run(
        "gcc -flto -c main.c need.c v1.c v2.c; for n in v1 need v2; do ar rc lib$n.a $n.o; done;"
        "ld -r -o all.o main.o libv1.a libneed.a libv2.a; ld -r -T order.ld -o main2.o main.o"
    )
    linkers = read_linker_calls(project.records)
    (choice,) = differing_choices([], CLANG, NM, project.root, linkers)
    assert choice.output == "all.o" and choice.symbol == "v"
    found = find_differences(
        FinishedBuild(project.records, project.root, project.root, project.root, CLANG, NM, lto=True)
    )
    assert any("order.ld" in text for text in found.refused)


@pytest.mark.parametrize(
    ("defined", "lto", "gnu", "found"),
    [
        ("int f(int x) { return x; } int g(int x) { return f(x + 1) * 2; }", False, False, True),
        ("int f(int x) { return x; } int g(int x) { return x * 2; }", False, False, False),
        ("int f(int x) { return x; } int g(int x) { return f(x + 1) * 2; }", True, False, True),
        ("int f(int x) { return x; } int g(int x) { return x * 2; }", True, True, True),
    ],
)
def test_wrapped_functions_of_the_program_are_found(
    project: Project, defined: str, lto: bool, gnu: bool, found: bool
) -> None:
    project.write(
        a__c=f"__attribute__((noinline)) {defined}\n",
        main__c="int f(int), g(int), __real_f(int);\nint __wrap_f(int x) { return __real_f(x) + 100; }\n"
        "int main(void) { return f(1) + g(1); }\n",
    )
    link = "gcc -c a.c main.c {}; gcc {} a.o main.o -Wl,--wrap,f -Wl,--wrap=malloc -o $OUT/prog"
    flags = "-flto" if lto else "-fno-lto"
    new = link.format(flags, f"{flags} -fuse-ld=lld")
    assert ("with --wrap=f," in project.build(link.format("", ""), new, lto, gnu).refusal) == found


def test_functions_in_sections_that_lld_does_not_move_are_found(project: Project) -> None:
    project.write(
        a__c="""
static int n;
static void set(void) { n = 1; }
__attribute__((section(".ctors"), used)) static void (*const first)(void) = set;
int main(void) { return !n; }
"""
    )
    link = "gcc a.c -o $OUT/prog"
    assert ".ctors" in project.build(f"{link}; $OUT/prog", f"{link} {LINK}; ! $OUT/prog").refusal
    assert project.build(link, link).refusal == ""


def test_files_that_lto_reads_from_another_place_or_later_are_found(project: Project) -> None:
    (project.root / "sub").mkdir()
    text = 'asm(".section .rodata\\n.global " NAME "\\n" NAME ": .incbin \\"" "data.bin\\"\\n.previous");\n'
    project.write(data__c=text, data__bin="one", main__c="int main(void) { return 0; }\n")
    (project.root / "sub/data.bin").write_text("two")
    link = "gcc -c main.c; gcc main.o {} -o $OUT/prog"
    compile_ = "gcc -c -DNAME='\"d\"' data.c;"
    assert project.build(link.format(""), compile_ + link.format("data.o"), lto=True).refusal == ""
    for command, reason in (
        (
            compile_ + " sleep 0.01; echo 2 >data.bin;",
            "assembly in data.c includes data.bin, which the build wrote again",
        ),
        (
            "cd sub; gcc -c -DNAME='\"d\"' ../data.c -o ../data.o; cd ..;",
            "includes sub/data.bin, and LTO may read data.bin",
        ),
    ):
        found = project.build(link.format(""), command + link.format("data.o"), lto=True).refusal
        assert reason in found
    assert project.build(link.format(""), command + link.format("data.o")).refusal == ""


@pytest.mark.parametrize(
    ("script", "lto", "reason"),
    [
        (
            "SECTIONS { .mine : { *(.text) } } INSERT AFTER .init;",
            False,
            "has a place for .text, but none for .text.NAME",
        ),
        ("SECTIONS { .mine : { *(SORT(.text.*) .text) } } INSERT AFTER .init;", False, ""),
        ("SECTIONS { .text : { *(.text .text.*) } d = SIZEOF(.data); }", False, ""),
        ("INCLUDE inner.txt", True, "the linker script inner.txt names objects"),
        ("INCLUDE inner.txt", False, ""),
    ],
)
def test_scripts_of_any_name_are_read(project: Project, script: str, lto: bool, reason: str) -> None:
    project.write(
        a__c="int main(void) { return 0; }\n",
        script__lnk=f"{script}\n",
        inner__txt="SECTIONS { .one : { KEEP(*a.o(.one)) } } INSERT AFTER .data;\n",
    )
    new = "gcc -c a.c; gcc a.o -Wl,-T,script.lnk -o $OUT/prog || :"
    found = project.build("gcc a.c -o $OUT/prog", new, lto).refusal
    assert reason in found if reason else "script" not in found


def test_functions_of_two_libraries_of_one_program_are_found(project: Project) -> None:
    project.write(
        a__cc="int version() { return 1; }\nint a() { return version(); }\n",
        b__cc="int version() { return 2; }\nint b() { return version(); }\n",
        main__cc="int a(), b();\nint main() { return a() + b() != 2; }\n",
        plugin__cc="int plugin() { return 1; }\nint name() { return plugin(); }\n",
    )
    project.run(
        "mkdir own; cd own; for n in a b plugin; do /usr/bin/g++ -fPIC -shared ../$n.cc -o lib$n.so; done;"
        "cp libplugin.so libother.so; /usr/bin/g++ ../main.cc -o prog -L. -la -lb -Wl,-rpath,'$ORIGIN'; ./prog; cd ..;"
        "g++ -fPIC -c a.cc b.cc plugin.cc"
    )
    assert replaced_functions(project.calls(), project.root / "own", NM, project.root) == []
    project.run("for n in a b plugin; do g++ -fPIC -c $n.cc; done")
    found = replaced_functions(project.calls(), project.root / "own", NM, project.root)
    assert [text.partition(", whose calls in ")[2].split()[0] for text in found] == ["a.o", "b.o"]


def test_macros_that_the_configuration_defines_are_read(tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    zero = "#define HAVE_A 0\n#define HAVE_B 0x1\n#define HAVE_C\n"
    for tree, have in ((source, "/* #undef HAVE_X */"), (root, f"#define HAVE_X 1\n # define HAVE_Y\n{zero}")):
        (tree / "b").mkdir(parents=True)
        (tree / "config.h").write_text(f"{have}\n")
        (tree / "own.h").write_text("#define OWN\n")
    (root / "b/flags.make").write_text('C_DEFINES = -DWITH_Z -DNAME=\\"x-DNO\\"\n')
    log = tmp_path / "log"
    log.write_text("cc -DUSE_FULL -DUSE_NONE=0 -DLEVEL=02 -c a.c\n")
    defined = defined_names(root, source, log)
    assert defined == {"HAVE_B", "HAVE_C", "HAVE_X", "HAVE_Y", "WITH_Z", "NAME", "USE_FULL", "LEVEL"}
    (note,) = notes_on(BuiltFiles({}, definitions=frozenset({"B", "A"})), BuiltFiles({}))
    assert "does not define A, B," in note
    assert notes_on(BuiltFiles({}), BuiltFiles({})) == []


def test_a_library_by_clang_does_not_make_the_build_one_by_clang(project: Project) -> None:
    project.write(a__c="int pre(void);\nint main(void) { return pre(); }\n", pre__c="int pre(void) { return 0; }\n")
    project.run(
        f"mkdir gcc clang; {CLANG} -c pre.c -o pre.o; ar rc libpre.a pre.o; rm pre.o;"
        f"cd gcc; /usr/bin/gcc -c ../a.c; /usr/bin/gcc a.o ../libpre.a -o prog;"
        f"cd ../clang; {CLANG} -c ../a.c; {CLANG} a.o ../libpre.a -o prog"
    )
    assert not made_by_clang(project.root / "gcc", project.root / "gcc")
    assert made_by_clang(project.root / "clang", project.root / "clang")
