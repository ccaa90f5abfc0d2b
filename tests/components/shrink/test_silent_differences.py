"""Differences that neither compiler nor linker mentions: order, tables, levels, what the compiler's name chooses."""

from __future__ import annotations

import pytest

from components.shrink.differences.ignored import ignored_by_lto, ignored_options, replaced_levels
from components.shrink.differences.linked_files import named_paths
from components.shrink.differences.records import read_readers
from tests.components.shrink.conftest import NM, Project

LLD = "-fuse-ld=lld -Wl,--gc-sections -Wl,-z,nostart-stop-gc -ffunction-sections -fdata-sections"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            ".init.drv : { first = .; *(.data.drv) last = .; }",
            "has 0 bytes between first and last of the linker script",
        ),
        ("first = .; .data.drv : { *(SORT(.data.drv)) } last = ABSOLUTE(.);", "has 0 bytes between first and last"),
        (".data.drv : { first = .; KEEP(*(.data.drv)) PROVIDE(last = .); }", ""),
        (".code : { first = .; *(.own_code) last = .; }", ""),
        (".mine : { first = .; *(.data .data.*) last = .; }", ""),
    ],
)
def test_tables_of_linker_scripts_that_nothing_names_are_found(project: Project, script: str, reason: str) -> None:
    project.write(
        main__c="extern int first[], last[]; int main(void) { return last - first; }\n",
        a__c='int a __attribute__((section(".data.drv"))) = 5; int unused[100] = {1};\n'
        '__attribute__((section(".own_code"))) int code(int n) { return n; }\n',
        drv__ld=f"SECTIONS {{ {script} }} INSERT AFTER .init;\n",
    )
    link = "gcc main.c a.c -Wl,-T,drv.ld -o $OUT/prog"
    refused = project.build(link, f"{link} {LLD}").refusal
    assert reason in refused if reason else "between" not in refused


def test_notes_of_own_names_are_sections_that_may_be_lost(project: Project) -> None:
    project.write(
        a__c="int main(void) { return 0; }\n",
        note__c='const int note[5] __attribute__((section(".note.app"), aligned(4))) = {4, 4, 7, 1, 1};\n',
    )
    found = project.build("gcc a.c note.c -o $OUT/prog", "gcc a.c -o $OUT/prog")
    assert "no section .note.app" in found.refusal


def test_what_lto_does_not_see_at_the_link_is_found(project: Project) -> None:
    project.write(a__c="int a(void) { return 1; }\n")
    project.run(
        "gcc -flto -c a.c -Wa,-L,--defsym,FAST=1 2>/dev/null || :;"
        "gcc -c a.c -Xassembler --defsym=X=1 2>/dev/null || :;"
        "gcc -shared a.o -o liba.so -z muldefs -Wl,-init=a 2>/dev/null || :"
    )
    calls = project.calls()
    for gnu, words in ((False, ("-Wa,-L,--defsym,FAST=1", "--defsym=X=1", "-Wl,-z,muldefs")), (True, ("-Wl,-init=a",))):
        found = ignored_by_lto(calls, gnu)
        assert len(found) == len(words) and all(f" {word} " in text for word, text in zip(words, found, strict=True))


def test_levels_that_mean_more_than_speed_are_noted(project: Project) -> None:
    project.write(a__c="int a;\n", b__c="int b;\n", c__c="int c;\n")
    project.run("gcc -c -O2 a.c; gcc -c -O2 -O0 b.c; gcc -c -O0 -O1 c.c")
    (note,) = replaced_levels(project.calls())
    assert note.startswith("b.c: compiled for size")
    project.run("rm ../tools/records/*; gcc -c -O0 a.c; gcc -c -O0 b.c")
    assert replaced_levels(project.calls()) == []
    project.run("gcc -c -Ofast a.c")
    assert any("-Ofast" in note for note in replaced_levels(project.calls()))


def test_response_files_in_response_files_are_read(project: Project) -> None:
    project.write(a__c="int a;\n", outer__rsp="-O2\n@inner.rsp", inner__rsp="-funsigned-bitfields\n")
    project.run("gcc -w -c a.c @outer.rsp; rm outer.rsp inner.rsp")
    assert "-funsigned-bitfields" in ignored_options(project.calls())


def test_sizes_and_bytes_of_objects_of_lto_are_recorded(project: Project) -> None:
    project = Project(project.root / "more", {"nm": NM})
    project.write(a__c="int a(void) { return 1; }\n")
    project.run(
        "gcc -c -flto a.c; gcc -c a.c -o elf.o; cp a.o conftest.o; nm -g a.o; nm -gS elf.o; nm -gS a.o;"
        "nm --numeric-sort a.o; od -c a.o | head -1; od -c elf.o | head -1; od -c conftest.o | head -1"
    )
    assert read_readers(project.records) == ["nm -gS a.o", "nm --numeric-sort a.o", "od -c a.o"]


def test_libraries_that_only_gnu_ld_finds_at_run_time_are_found(project: Project) -> None:
    project.write(a__c="int main(void) { return 0; }\n")
    link = "LD_RUN_PATH=/opt/lib gcc a.c -o $OUT/prog"
    assert "prog does not say where its libraries are" in project.build(link, f"{link} -fuse-ld=lld").refusal
    assert project.build(link, f"{link} -fuse-ld=lld -Wl,-rpath,/opt/lib").refusal == ""


def test_initializers_in_another_order_are_noted(project: Project) -> None:
    project.write(
        a__c="""
#define SAY(name) __attribute__((constructor)) static void name(void) { }
SAY(first) SAY(second)
int main(void) { return 0; }
""",
        b__c="__attribute__((constructor)) static void third(void) { }\n",
    )
    own = "gcc a.c b.c -o $OUT/prog"
    assert project.build(own, "gcc a.c b.c -o $OUT/prog -fuse-ld=lld").notes == ()
    (note,) = project.build(own, "gcc b.c a.c -no-pie -o $OUT/prog -fuse-ld=lld").notes
    assert note == "prog runs its initializers in another order: second ran before third"
    (note,) = project.build(own, "/usr/bin/gcc -flto a.c b.c -o $OUT/prog", lto=True, gnu=True).notes
    assert note == "gcc's LTO runs the 3 initializers of prog in another order"


def test_members_of_archives_whose_initializers_run_in_another_order_are_noted(project: Project) -> None:
    project.write(
        main__cc="int a(), b(); int reg() { return 1; } int main() { return a() + b(); }\n",
        a__cc="int c(); int a() { return c(); }\n",
        b__cc="int reg(); static int x = reg(); int b() { return x; }\n",
        c__cc="__attribute__((constructor)) static void start() { } int c() { return 0; }\n",
    )
    link = "g++ {0} -c main.cc a.cc b.cc c.cc; rm -f libr.a; ar rc libr.a {1}; g++ {0} main.o libr.a -o $OUT/prog"
    for flags in ("-fuse-ld=lld", "-fuse-ld=lld -flto"):
        found = project.build(link.format("", "c.o a.o b.o"), link.format(flags, "c.o a.o b.o")).notes
        assert any("libr.a[b.o] before those of libr.a[c.o] by GNU ld" in note for note in found)
    assert project.build(link.format("", "a.o b.o c.o"), link.format("-fuse-ld=lld", "a.o b.o c.o")).notes == ()


def test_tables_in_another_order_are_noted(project: Project) -> None:
    project.write(
        a__c="""
#define ENTRY(name) static const int name __attribute__((used, section("table"))) = 1;
ENTRY(one) ENTRY(two)
extern const int __start_table[], __stop_table[];
int main(void) { return __stop_table - __start_table; }
"""
    )
    (note,) = project.build("gcc -O2 a.c -o $OUT/prog", f"gcc -Oz a.c -o $OUT/prog {LLD}").notes
    assert note == "section table of prog has its entries in another order: two was before one"


def test_what_the_compilers_name_chooses_is_noted(project: Project) -> None:
    project.write(
        a__c="""
#include <assert.h>
#if __GNUC__ >= 7
#define GOOD 1
#endif
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wall"
#endif
#if defined __has_feature
#define FEATURE 1
#endif
int main(int argc, char **argv) {
  assert(argc);
#ifdef GOOD
  return 0;
#endif
  return 1;
}
"""
    )
    same = (project.root / "a.c").read_text().replace("#ifdef GOOD", "#if 0")
    (note,) = project.build("gcc a.c -o $OUT/prog", "gcc a.c -o $OUT/prog").notes
    assert note.startswith("#if chooses other code than for gcc ") and note.endswith("at a.c:15")
    project.write(a__c=same)
    assert project.build("gcc a.c -o $OUT/prog", "gcc a.c -o $OUT/prog").notes == ()


def test_names_of_functions_with_types_are_noted(project: Project) -> None:
    project.write(
        a__cc="""
#include <cassert>
template <class T> const char *name() { return __PRETTY_FUNCTION__; }
int main(int argc, char **) { assert(argc); return name<int>()[0] == 0; }
""",
        b__cc="#include <cassert>\n// not __PRETTY_FUNCTION__\nint main(int argc, char **) { assert(argc); }\n",
    )
    (note,) = project.build("g++ a.cc -o $OUT/prog", "g++ a.cc -o $OUT/prog").notes
    assert "__PRETTY_FUNCTION__ at a.cc:3" in note
    assert project.build("g++ b.cc -o $OUT/prog", "g++ b.cc -o $OUT/prog").notes == ()


def test_paths_in_wide_texts_are_found(project: Project) -> None:
    project.write(a__c="const void *text(void) { return DATA; }\nint main(void) { return !text(); }\n")
    (project.root / "files").mkdir()
    for prefix in "uUL":
        project.run(f"gcc a.c -DDATA='{prefix}\"{project.root}/data\"' -o files/prog")
        assert named_paths(project.root / "files", project.root) == [("prog", "")]
