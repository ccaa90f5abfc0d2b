"""Functions and variables that the source declares used are kept on replay, and others are not: the text is equal."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.core.compiler.objects.elf import Elf
from components.core.compiler.replay.command_line import replay_arguments
from components.core.formats.corpus import Module
from components.corpus.extract_command import _remedy
from components.corpus.extraction.extract import ExtractConfig, extract_objects
from components.corpus.extraction.outcome import Outcome
from components.corpus.report import make_report
from components.corpus.sources.objects import ObjectFile

USED = "__attribute__((used))"
CODE = {
    "unreferenced": f"static {USED} int f(int a) {{ int s = 0; while (a--) s += a * s ^ 3; return s; }}\n",
    "also called": f"static {USED} int f(int a) {{ return a * 3; }}\nint g(int a) {{ return f(a) + f(a + 1); }}\n",
    "calls another": (
        f"static int h(int a) {{ return a * a; }}\nstatic {USED} int f(int a) {{ return h(a) + h(a + 1); }}\n"
    ),
    "recursive": f"static {USED} int f(int a) {{ return a < 2 ? 1 : a * f(a - 1) + f(a - 2); }}\n",
    "table": f"int p(int);\nstatic int f(int a) {{ return p(a); }}\nstatic int (*t)(int) {USED} {{SECTION}} = f;\n",
    "inline": f"inline {USED} int f(int a) {{ return a * 5; }}\nint g(int a) {{ return a; }}\n",
    "named": "static __attribute__((used)) int f$x(int a) { return a; }\nint g(int a) { return a; }\n",
    "among others": (
        f"int p(int);\nint g(int a) {{ return p(a) - 1; }}\nstatic {USED} int f(int a) {{ return a * 9; }}\n"
        f"static {USED} long h(long a) {{ return a * a * a - 9; }}\nint i(int a) {{ return p(a) * 3; }}\n"
    ),
    "static constants": 'static const int size = 7; static const char name[] = "x"; int g(void) { return size; }\n',
}
OUTLINED = "int p(int);\nstatic __attribute__((noinline)) int f(int a) { return p(a) * 3; }\n"
FREE = {
    "called": f"{OUTLINED}int g(int a) {{ return f(a) + 1; }}\n",
    "tail call": f"{OUTLINED}int g(int a) {{ return f(a); }}\n",
    "jump": f"{OUTLINED}int g(int a) {{ return a > 3 ? f(a) : a; }}\n",
    "pointer": "static int f(int a) { return a * 3; }\nvoid *g(void) { return (void *)f; }\nint (*t)(int) = f;\n",
    "recursive": (
        "int p(int);\nstatic int f(int a) { return a < 2 ? p(a) : a * f(a - 1) + f(a - 2); }\n"
        "int g(int a) { return f(a); }\n"
    ),
    "constructor": "int p(int);\nstatic __attribute__((constructor)) void f(void) { p(1); }\n",
    "weak": "__attribute__((weak)) int f(int a) { return a * 3; }\nint g(int a) { return a; }\n",
    "data": "static int v[9]; int g(int a) { v[a & 7] = a; return v[(a + 1) & 7]; }\n",
}
FLAGS = [(), ("-ffunction-sections", "-fdata-sections"), ("-O2",), ("-g", "-fno-pic")]
INSTRUMENTED = [
    ("-O2", "-fprofile-generate"),
    ("-Os", "-fprofile-instr-generate", "-fcoverage-mapping"),
    ("-Oz", "-fsanitize-coverage=trace-pc-guard,pc-table,control-flow"),
    ("-Oz", "-fexperimental-sanitize-metadata=covered"),
    ("-O1", "-fsanitize=thread"),
]
"""Flags with which sections refer to functions that nothing calls, or code has words to be relocated."""


def extract(directory: Path, code: str, language: str, flags: tuple[str, ...]) -> Outcome:
    source = directory / f"m.{language}"
    source.write_text(code.replace("{SECTION}", '__attribute__((section(".table")))'))
    command = ["clang-19", "-Oz", *flags, "-Xclang", "-fembed-bitcode=all", "-c", str(source), "-o"]
    subprocess.run([*command, str(directory / "m.o")], check=True)
    (outcome,) = extract_objects([ObjectFile(str(directory / "m.o"), "m.o")], directory / "corpus", ExtractConfig())
    return outcome


def sections(path: Path) -> dict[str, bytes]:
    elf = Elf(path.read_bytes())
    contents = {}
    for index in range(1, len(elf.allocated_sections())):
        name = elf.section_name(index)
        if elf.allocated_sections()[index] and not name.startswith((".bss", ".tbss")):
            contents[f"{index if name.startswith('.group') else ''}{name}"] = bytes(elf.contents(index))
    return contents


def replay(directory: Path) -> dict[str, bytes]:
    module = Module("m.o", directory / "corpus")
    arguments = replay_arguments(module.arguments(), module.bitcode, directory / "replayed.o")
    subprocess.run(["clang-19", *arguments], check=True)
    return sections(directory / "replayed.o")


def read_embedded(directory: Path) -> bytes:
    section = Elf((directory / "m.o").read_bytes()).section(".llvmbc")
    assert section is not None
    return bytes(section)


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("code", CODE.values(), ids=CODE)
def test_replay_keeps_what_is_used(code: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    language = "cc" if "inline " in code else "c"
    flags = (*flags, "-fkeep-static-consts") if "static const" in code else flags
    assert extract(tmp_path, code, language, flags).kind == "extracted"
    assert (tmp_path / "corpus" / "m.o.bc").read_bytes() != read_embedded(tmp_path)
    assert replay(tmp_path) == sections(tmp_path / "m.o")


@pytest.mark.parametrize("flags", INSTRUMENTED, ids=" ".join)
def test_replay_of_instrumented_modules_keeps_what_is_used(flags: tuple[str, ...], tmp_path: Path) -> None:
    assert extract(tmp_path, CODE["among others"], "c", flags).kind == "extracted"
    assert replay(tmp_path) == sections(tmp_path / "m.o")


def test_replay_of_distributed_thinlto_keeps_what_is_used(tmp_path: Path) -> None:
    """The index of the link, the back end of the module, and its replay."""
    main = (
        "int g(int); int i(int);\nint p(int a) { return a * 5; }\nint main(int a, char **b) { return g(a) + i(a); }\n"
    )
    for name, code in (("m", CODE["among others"]), ("main", main)):
        (tmp_path / f"{name}.c").write_text(code)
        command = ["clang-19", "-Oz", "-flto=thin", "-c", f"{name}.c", "-o", f"{name}.thin.o"]
        subprocess.run(command, cwd=tmp_path, check=True)
    link = ["clang-19", "-fuse-ld=lld", "-flto=thin", "-Wl,--thinlto-index-only", "m.thin.o", "main.thin.o"]
    link += ["-o", "main"]
    subprocess.run(link, cwd=tmp_path, check=True)
    command = ["clang-19", "-Oz", "-c", "-x", "ir", "m.thin.o", "-fthinlto-index=m.thin.o.thinlto.bc", "-o", "m.o"]
    subprocess.run([*command, "-mllvm", "-lto-embed-bitcode=post-merge-pre-opt"], cwd=tmp_path, check=True)
    objects = [ObjectFile(str(tmp_path / "m.o"), "m.o", directory=str(tmp_path))]
    (outcome,) = extract_objects(objects, tmp_path / "corpus", ExtractConfig(thinlto="distributed"))
    assert outcome.kind == "extracted", outcome.detail
    module, replayed = Module("m.o", tmp_path / "corpus"), tmp_path / "replayed.o"
    index = tmp_path / "corpus" / "m.o.thinlto.bc"
    arguments = replay_arguments(module.arguments(), module.bitcode, replayed, thinlto_index=index)
    subprocess.run(["clang-19", *arguments], check=True)
    assert sections(replayed) == sections(tmp_path / "m.o")


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("code", FREE.values(), ids=FREE)
def test_bitcode_is_unchanged_if_nothing_is_used(code: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    assert extract(tmp_path, code, "c", flags).kind == "extracted"
    assert (tmp_path / "corpus" / "m.o.bc").read_bytes() == read_embedded(tmp_path)


@pytest.mark.parametrize(
    "target", ["aarch64-linux-gnu", "armv7-linux-gnueabihf", "riscv64-linux-gnu", "i686-linux-gnu"]
)
def test_unreferenced_functions_are_kept_on_other_processors(target: str, tmp_path: Path) -> None:
    flags = (f"--target={target}",)
    assert extract(tmp_path, CODE["unreferenced"] + FREE["called"].replace("f(", "h("), "c", flags).kind == "extracted"
    assert replay(tmp_path) == sections(tmp_path / "m.o")


def test_module_is_left_out_by_name_without_opt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert extract(tmp_path, CODE["unreferenced"], "c", ()).kind == "extracted"
    monkeypatch.setenv("PATH", str(tmp_path))
    objects = [ObjectFile(str(tmp_path / "m.o"), "m.o")]
    (outcome,) = extract_objects(objects, tmp_path / "corpus", ExtractConfig())
    assert outcome.kind == "not_restored" and "llvm-19" in outcome.detail and " f " in outcome.detail
    report = make_report("p", [outcome])
    assert "llvm-19" in _remedy(report, "directory", None) and "coverage" not in _remedy(report, "directory", None)
