"""Links repeated with other files: what they read, and their arguments."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from components.core.compiler.objects.archive import Member
from components.core.formats.links import BuildLinks, Link, embedded_digest
from components.core.projects.build_links.inputs import flatten
from components.core.projects.flags.build_variants import BuildVariant
from components.evaluation.projects.link_replay import (
    NO_BITCODE,
    Archive,
    NotReplayed,
    ReplayPlan,
    has_sources,
    rewrite,
)
from components.evaluation.projects.own_build import _Replay

LLVM_AR = "/usr/lib/llvm-19/bin/llvm-ar"


def link(directory: Path, *words: str, output: str = "program") -> Link:
    return Link(str(directory), False, (*words, "-o", output), str(directory / output))


def files(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()


def test_file_behind_the_linkers_option_x_is_replaced(tmp_path: Path) -> None:
    changed = rewrite(link(tmp_path, "-Wl,-x", "a.o"), Path("/w/out"), {str(tmp_path / "a.o"): Path("/w/1.o")}, {})
    assert changed == ["-Wl,-x", "/w/1.o", "-o", "/w/out"]


def test_arguments_name_other_files_and_keep_the_rest(tmp_path: Path) -> None:
    files(tmp_path, "a.o", "b.a")
    words = ("-O3", "-o", "out", "a.o", "-Wl,--as-needed,b.a", "-L", "lib", "-Lother", "-ld", "-Wl,-rpath,lib")
    ours = {str(tmp_path / "a.o"): Path("/w/1.o"), str(tmp_path / "b.a"): Path("/w/b.a")}
    changed = rewrite(link(tmp_path, *words), Path("/w/out"), ours, {str(tmp_path / "lib"): Path("/w/lib")})
    assert changed == [
        *("-O3", "/w/1.o", "-Wl,--as-needed", "-Wl,/w/b.a", "-L/w/lib", "-L", "lib", "-Lother", "-ld"),
        *("-Wl,-rpath", "-Wl,lib", "-o", "/w/out"),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("-Wl,-Map=out.map",),
        ("-Wl,-Map,out.map",),
        ("-Xlinker", "--dependency-file=out.d"),
        ("-Xlinker", "--dependency-file", "-Xlinker", "out.d"),
        ("-MD", "-MF", "out.d", "-MT", "out"),
        ("-oother",),
        ("--output=other",),
        ("-Xclang", "-fembed-bitcode=all"),
        ("-save-temps=obj",),
        ("-Wl,--thinlto-cache-dir=cache",),
        ("-Wl,-plugin-opt=cache-dir=cache,--save-temps",),
        ("-Wl,--opt-remarks-filename,remarks", "-Wl,--opt-remarks-with-hotness,--opt-remarks-passes=inline"),
        ("-Wl,-plugin-opt=opt-remarks-filename=remarks,-plugin-opt=stats-file=stats",),
    ],
)
def test_options_that_write_other_files_are_left_out(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert rewrite(link(tmp_path, "a.o", *words, "-lm"), Path("/w/out"), {}, {}) == ["a.o", "-lm", "-o", "/w/out"]


@pytest.mark.parametrize(
    "words",
    [
        ("-fplugin=evil.so",),
        ("-fpass-plugin=evil.so",),
        ("--ld-path=/tmp/ld",),
        ("-fuse-ld=/tmp/ld",),
        ("-B/tmp",),
        ("-B", "/tmp"),
        ("-Xclang", "-load"),
        ("-Wl,-plugin,evil.so",),
        ("-Xlinker", "--plugin=evil.so"),
        ("-Wl,--load-pass-plugin=evil.so",),
        ("-specs=evil",),
        ("--config", "evil"),
        ("-wrapper", "sh,-c"),
        ("-o", "out", "-fplugin=evil.so"),
        ("-Wl,-Map,out.map", "-fplugin=evil.so"),
        ("-u", "-Xlinker", "-fplugin=a,b.so"),
        ("-Xclang=-load",),
        ("-Xpreprocessor", "-load"),
        ("-Wp,-load,evil.so",),
        ("-Wp,-DX,-load,evil.so",),
        ("-mllvm", "-load=evil.so"),
        ("-mllvm", "-x86-lvi-load-opt-plugin=evil.so"),
        ("-mllvm", "-load", "-mllvm", "evil.so"),
        ("-Wl,-mllvm,-exec-on-ir-change=evil",),
        ("-Wl,-mllvm", "-O2", "-Wl,-load=evil.so"),
        ("-Wl,-mllvm=-load=evil.so",),
        ("-Wl,-plugin-opt=-load=evil.so",),
        ("-Wl,-plugin-opt,-load=evil.so",),
        ("-fopenmp", "-fopenmp-targets=x86_64", "-Wl,--linker-path=/tmp/evil"),
        ("-Wl,@words",),
        ("-Xlinker", "@words"),
        ("--for-linker", "-plugin"),
        ("--driver-mode=cl",),
        ("-cc1", "-load", "evil.so"),
    ],
)
def test_options_that_run_programs_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(NotReplayed, match="a program"):
        rewrite(link(tmp_path, "a.o", *words), Path("/w/out"), {}, {})


@pytest.mark.parametrize(
    "words",
    [
        ("-Wl,-mllvm,--save-temps,-print-changed-diff-path=evil",),
        ("-Wl,-mllvm,-Map,out,-print-changed-diff-path=evil",),
        ("-mllvm", "-MD", "-print-changed-diff-path=evil"),
        ("-target", "-MD", "/tmp/evil"),
    ],
)
def test_values_of_options_are_not_left_out(tmp_path: Path, words: tuple[str, ...]) -> None:
    """The next word, which was checked as another, would become the value."""
    arguments = rewrite(link(tmp_path, *words), Path("/w/out"), {}, {})
    assert flatten(arguments)[:2] == flatten(words)[:2]


def test_thin_library_of_a_pipe_is_left_as_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.o")
    (tmp_path / "a.a").write_bytes(b"!<thin>\n" + b"pipe.o/".ljust(48) + b"0".ljust(10) + b"`\n")
    linked = link(tmp_path, "a.a")
    plan = ReplayPlan(BuildLinks(str(tmp_path), "recorded", (linked,), {}))
    assert plan.piece(str(tmp_path / "a.a")) is None


def test_links_of_an_earlier_link_lead_nowhere(tmp_path: Path) -> None:
    """A linker that was taken over may leave anything below the root, to which this process writes, too."""
    (tmp_path / "root").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root/archives").symlink_to(tmp_path / "elsewhere")
    plan = ReplayPlan(BuildLinks(str(tmp_path), "recorded", (), {}))
    variant = BuildVariant("stock", Path("/usr/bin/clang-19"), [])
    replay = _Replay(plan, variant, "-Oz", tmp_path / "root", set(), Path("/usr/lib/llvm-19/bin/clang"))
    with pytest.raises(NotReplayed, match="symbolic link"):
        replay._make_archive(str(tmp_path / "a.a"), Archive(((Member("a.o", memoryview(b"")), None),)))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_linkers_options_of_the_same_letters_are_kept(tmp_path: Path) -> None:
    words = ("-Wl,-Bsymbolic-functions", "-Wl,-Bstatic", "-fuse-ld=lld", "-Wl,-plugin-opt=O2")
    kept = rewrite(link(tmp_path, *words), Path("/w/out"), {}, {})
    assert kept[:4] == list(words)


@pytest.mark.parametrize(
    "words",
    [
        ("-Wl,-mllvm,-inline-threshold=5", "-mllvm", "-inline-threshold=5"),
        ("-Wl,-mllvm,-enable-ml-inliner=release", "--target=x86_64-linux-gnu"),
        ("-Wp,-D_FORTIFY_SOURCE=2", "-Wa,--noexecstack", "-gcolumn-info", "-Xlinker", "-z,now"),
    ],
)
def test_options_that_run_nothing_are_kept(tmp_path: Path, words: tuple[str, ...]) -> None:
    kept = rewrite(link(tmp_path, *words), Path("/w/out"), {}, {})
    assert flatten(kept) == flatten([*words, "-o", "/w/out"])


def run_anything(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('#!/bin/sh\ntouch "${0%/*}/ran"\nexit 1\n')
    path.chmod(0o755)


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("bin/ld", ("--prefix", "bin")),
        ("bin/ld", ("--prefix=bin",)),
        ("bin/ld", ("-ccc-install-dir", "bin")),
        ("x86_64-linux-gnu/bin/ld", ("--gcc-toolchain=.",)),
        ("usr/x86_64-linux-gnu/bin/ld", ("--sysroot=.",)),
        ("x86_64-pc/x-linux-gnu-ld", ("--target=x86_64-pc/x-linux-gnu",)),
        ("x86_64-pc/x-linux-gnu-ld", ("-target", "x86_64-pc/x-linux-gnu")),
        ("bin/ld", ("@words",)),
    ],
)
def test_programs_that_clang_would_run_are_refused(tmp_path: Path, program: str, words: tuple[str, ...]) -> None:
    run_anything(tmp_path / program)
    (tmp_path / "words").write_text("-Bbin")
    library = "usr/lib" if program.startswith("usr") else "lib"
    files(tmp_path, "a.o", f"{library}/gcc/x86_64-linux-gnu/99/crtbegin.o")
    program_link = link(tmp_path, "a.o", *words)
    subprocess.run(["clang-19", *program_link.arguments], cwd=tmp_path, capture_output=True)
    assert (tmp_path / program).with_name("ran").exists(), "clang runs it"
    with pytest.raises(NotReplayed, match="a program"):
        rewrite(program_link, Path("/w/out"), {}, {})


def test_links_come_after_what_they_use_and_cycles_end(tmp_path: Path) -> None:
    files(tmp_path, "a", "b.so", "c.so")
    (tmp_path / "libb.so").symlink_to("b.so")
    a = link(tmp_path, "-L.", "-lb", output="a")
    b, c = link(tmp_path, "c.so", output="b.so"), link(tmp_path, "b.so", output="c.so")
    plan = ReplayPlan(BuildLinks(str(tmp_path), "recorded", (a, b, c), {}))
    assert [Path(one.output).name for one in plan.order] == ["c.so", "b.so", "a"]
    assert not any(map(plan.changes, plan.order)), "no module of the corpus is in them"


def test_lto_of_relocatable_links_that_stay_as_built_does_not_count(tmp_path: Path) -> None:
    files(tmp_path, "a.o", "b.o", "part.o")
    part, program = link(tmp_path, "-r", "-flto", "b.o", output="part.o"), link(tmp_path, "a.o", "part.o")
    plan = ReplayPlan(BuildLinks(str(tmp_path), "recorded", (part, program), {}))
    assert plan.lto(program) is None
    with pytest.raises(NotReplayed, match="which objects"):
        plan.optimizes(part)


@pytest.mark.toolchain
@pytest.mark.parametrize("flags", ["qcs", "qcsT"])
def test_modules_are_found_by_their_bitcode_in_objects_and_libraries(tmp_path: Path, flags: str) -> None:
    digests = {}
    for name in ("a", "b", "main"):
        (tmp_path / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
        embed = [] if name == "b" else ["-Xclang", "-fembed-bitcode=all"]
        subprocess.run(["clang-19", "-Oz", *embed, "-c", f"{name}.c", "-o", f"{name}.o"], cwd=tmp_path, check=True)
        if embed:
            for section in ("bc", "cmd"):
                dump = [f"--dump-section=.llvm{section}={name}.{section}", f"{name}.o", "/dev/null"]
                subprocess.run(["llvm-objcopy-19", *dump], cwd=tmp_path, check=True)
            contents = [(tmp_path / f"{name}.{section}").read_bytes() for section in ("bc", "cmd")]
            digests[embedded_digest(*map(memoryview, contents))] = f"module/{name}.o"
    subprocess.run([LLVM_AR, flags, "liball.a", "a.o", "b.o"], cwd=tmp_path, check=True)
    program = link(tmp_path, "main.o", "liball.a", "b.o")
    plan = ReplayPlan(BuildLinks(str(tmp_path), "recorded", (program,), digests))
    assert plan.piece(str(tmp_path / "main.o")) == "module/main.o" and plan.piece(str(tmp_path / "b.o")) is None
    archive = plan.piece(str(tmp_path / "liball.a"))
    assert isinstance(archive, Archive)
    assert [(member.name, module) for member, module in archive.members] == [("a.o", "module/a.o"), ("b.o", None)]
    assert plan.modules(program) == {"module/main.o", "module/a.o"} and plan.changes(program)
    assert plan.kept_objects([program, program]) == {NO_BITCODE: ["liball.a(b.o)", "b.o"]}, (
        "b.o, alone and in the library"
    )
    subprocess.run(["llvm-strip-19", "--strip-debug", "main.o"], cwd=tmp_path, check=True)
    again = ReplayPlan(BuildLinks(str(tmp_path), "recorded", (program,), digests))
    assert again.piece(str(tmp_path / "main.o")) == "module/main.o"


def test_names_of_files_outside_of_the_build_stay_in_the_work_directory(tmp_path: Path) -> None:
    plan = ReplayPlan(BuildLinks(str(tmp_path / "build"), "recorded", (), {}))
    assert plan.within(str(tmp_path / "build" / "a" / "b")) == "a/b"
    assert plan.within(str(tmp_path / "bin" / "b")) == "__/bin/b"


def test_sources_are_told_from_objects(tmp_path: Path) -> None:
    assert has_sources(link(tmp_path, "a.cpp", "b.o")) and not has_sources(link(tmp_path, "a.o", "b.a", "-lc"))
