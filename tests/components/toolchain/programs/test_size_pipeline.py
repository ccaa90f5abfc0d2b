"""The release toolchain compiles programs of -Oz as one module, and keeps the smaller of two variants."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from components.core.compiler.objects.elf import Elf
from tests.components.toolchain.programs.linked_programs import run
from tests.components.toolchain.programs.test_linker import SOURCES, STOCK, sources, toolchain

pytestmark = pytest.mark.toolchain
__all__ = ["sources", "toolchain"]

LLVM_PIPELINE = ["-mllvm", "-mlgo-whole-program=0", "-Wl,-mllvm,-mlgo-whole-program=0"]
KEEP_SMALLER = ["-Wl,-mllvm,-mlgo-keep-smaller"]


def link(clang: Path, directory: Path, output: str, *flags: str) -> bytes:
    run(clang, "-Oz", "-flto", "-fvisibility=hidden", *flags, *SOURCES, "-o", output, directory=directory)
    return (directory / output).read_bytes()


def loaded(program: bytes) -> int:
    return Elf(memoryview(program)).text_size()


def test_program_is_smaller_than_by_llvms_pipelines(toolchain: Path, sources: Path) -> None:
    """The link has no -fuse-ld=lld: our clang chooses a linker that reads bitcode."""
    clang = toolchain / "bin" / "clang++"
    ours = link(clang, sources, "ours")
    llvms = link(clang, sources, "llvms", *LLVM_PIPELINE)
    assert loaded(ours) < 0.98 * loaded(llvms)
    assert run("./ours", directory=sources) == run("./llvms", directory=sources) != ""


@pytest.mark.parametrize("level", ["-O2", "-O3"])
def test_programs_of_other_levels_are_those_of_stock_tools(toolchain: Path, sources: Path, level: str) -> None:
    flags = ["-fuse-ld=lld", level]
    assert link(toolchain / "bin" / "clang++", sources, "ours", *flags) == link(STOCK, sources, "stock", *flags)


@pytest.mark.parametrize(("level", "same"), [("-Os", True), ("-Oz", False)])
def test_programs_of_os_keep_the_passes_that_make_loops_fast(
    toolchain: Path, tmp_path: Path, level: str, same: bool
) -> None:
    (tmp_path / "sum.c").write_text(
        "extern int n, a[], b[], k;\nint n = 100, a[100], b[300], k;\n"
        "__attribute__((noinline)) void fill(void) {\n"
        "  for (int i = 0; i < n; ++i) { a[i] = b[3 * i] + k * i; b[2 * i] = a[i] ^ 12345678; }\n}\n"
        "int main(void) { fill(); return a[1]; }\n"
    )
    fast = ["-Wl,-mllvm,-disable-lsr=0", "-Wl,-mllvm,-disable-machine-licm=0", "-Wl,-mllvm,-enable-load-pre=1"]
    for name, flags in (("default", []), ("fast", fast)):
        run(toolchain / "bin" / "clang", level, "-flto", "sum.c", "-o", name, *flags, directory=tmp_path)
    assert ((tmp_path / "default").read_bytes() == (tmp_path / "fast").read_bytes()) is same


def test_a_profile_is_applied_to_hot_functions_of_a_program_for_size(toolchain: Path, tmp_path: Path) -> None:
    cold = "\n".join(
        f"__attribute__((noinline)) int cold{i}(int x) {{ return x > {i} ? mix(x, {i}) : mix(x + {i}, x); }}"
        for i in range(9)
    )
    (tmp_path / "main.c").write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n"
        "static int mix(int a, int b) { a ^= b << 5; a += b >> 3; a *= 2654435761u; a ^= a >> 15; "
        "a -= b << 7; a ^= a << 3; a += b ^ (a >> 11); a *= 31u; return a ^ (a >> 7) ^ (b * 77u); }\n"
        f"{cold}\nint main(int n, char **v) {{\n  int s = 0;\n  for (int i = 0; i < 9999; i++) s = mix(s, i);\n"
        + "".join(f"  if (n == {i + 2}) s += cold{i}(atoi(v[1]));\n" for i in range(9))
        + '  printf("%d\\n", s);\n}\n'
    )
    clang = toolchain / "bin" / "clang"
    run(clang, "-O0", "-fprofile-instr-generate=p.profraw", "main.c", "-o", "raw", directory=tmp_path)
    expected = run("./raw", directory=tmp_path)
    profdata = STOCK.resolve().parent / "llvm-profdata"
    run(profdata, "merge", "p.profraw", "-o", "p.profdata", directory=tmp_path)
    use = ["-Oz", "-flto", "-fprofile-instr-use=p.profdata", "-mllvm", "-mlgo-whole-program"]
    # clang's driver gives the link a profile of LLVM's own passes, too, which have none here.
    link = ["-Wl,-mllvm,-mlgo-whole-program", "-Wl,-mllvm,-profile-summary-hot-count=4000"]
    link.append("-Wl,--lto-cs-profile-file=")
    texts = {}
    for name, flags in {
        "small": ["-Oz", "-flto"],
        "profiled": [*use, *link],
        "fast": [*use, *link, "-Wl,-mllvm,-mlgo-hot-functions"],
    }.items():
        run(clang, *flags, "main.c", "-o", name, "-Wl,--save-temps=precodegen", directory=tmp_path)
        assert run(f"./{name}", directory=tmp_path) == expected
        module = next(tmp_path.glob(f"{name}.*precodegen.bc"))
        disassemble = STOCK.resolve().parent / "llvm-dis"
        texts[name] = run(disassemble, module, "-o", "-", directory=tmp_path)

    def function(name: str, of: str) -> str:
        return texts[of].split(f"@{name}(", 1)[1].split("\n}", 1)[0]

    # The call in the loop is inlined, and those in functions that do not run have neither a profile nor copies.
    assert "@mix(" in function("main", "small") and "@mix(" not in function("main", "profiled")
    assert "@mix(" in function("cold3", "profiled") and "!prof" not in function("cold3", "profiled")
    assert texts["profiled"].count("minsize") == texts["small"].count("minsize")
    attributes = function("main", "fast").split("#", 1)[1].split(" ", 1)[0]
    assert "minsize" not in texts["fast"].split(f"attributes #{attributes} =", 1)[1].split("\n", 1)[0]


def test_backends_of_thinlto_fold_equal_functions(toolchain: Path, sources: Path) -> None:
    clang = toolchain / "bin" / "clang++"
    heuristic = ["-flto=thin", "--no-default-config", "-Wl,-mllvm,-enable-ml-inliner=default"]
    default, folded, not_folded, llvms = (
        link(clang, sources, f"program{number}", *heuristic, *flags)
        for number, flags in enumerate(
            ([], ["-Wl,-mllvm,-mlgo-fold=1"], ["-Wl,-mllvm,-mlgo-fold=0"], ["-Wl,-mllvm,-mlgo-whole-program=0"])
        )
    )
    assert default == folded != not_folded == llvms
    assert loaded(default) <= loaded(not_folded)


def test_type_tests_are_left_to_llvms_pipeline(toolchain: Path, tmp_path: Path) -> None:
    """The C file has no type tests, but must be split like the others."""
    (tmp_path / "shapes.cc").write_text(
        "#include <cstdio>\nstruct Shape { virtual int corners() const = 0; virtual ~Shape() {} };\n"
        "struct Square : Shape { int corners() const override { return 4; } };\n"
        'struct Line : Shape { int corners() const override { return 2; } };\nextern "C" int twice(int);\n'
        "__attribute__((noinline)) int count(const Shape *s) { return s->corners(); }\n"
        "int main(int argc, char **) { Square s; Line l;"
        ' std::printf("%d %d", twice(count(&s)), count(argc > 5 ? (Shape *)&s : &l)); }\n'
    )
    (tmp_path / "twice.c").write_text("int twice(int x) { return 2 * x; }\n")
    compiler = toolchain / "bin" / "clang++"
    flags = ["-Oz", "-flto", "-fvisibility=hidden"]
    run(compiler, *flags, "-fwhole-program-vtables", "-c", "shapes.cc", directory=tmp_path)
    run(toolchain / "bin" / "clang", *flags, "-c", "twice.c", directory=tmp_path)
    run(compiler, *flags, "-fwhole-program-vtables", "shapes.o", "twice.o", "-o", "shapes", directory=tmp_path)
    assert run("./shapes", directory=tmp_path) == "8 2"


COROUTINE = """
#include <coroutine>
#include <cstdio>
struct Numbers {
  struct promise_type {
    int value = 0;
    Numbers get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(int v) { value = v; return {}; }
    void return_void() {}
    void unhandled_exception() {}
  };
  std::coroutine_handle<promise_type> handle;
};
Numbers squares(int n) { for (int i = 0; i < n; ++i) co_yield i * i; }
int main() {
  Numbers numbers = squares(4);
  for (numbers.handle.resume(); !numbers.handle.done(); numbers.handle.resume())
    std::printf("%d ", numbers.handle.promise().value);
  numbers.handle.destroy();
}
"""


@pytest.mark.parametrize("extra", [[], ["-Wl,-mllvm,-mlgo-whole-program=0"]])
def test_coroutines_are_split_whichever_pipeline_links(toolchain: Path, tmp_path: Path, extra: list[str]) -> None:
    (tmp_path / "numbers.cc").write_text(COROUTINE)
    flags = ["-std=c++20", "-Oz", "-flto"]
    run(toolchain / "bin" / "clang++", *flags, *extra, "numbers.cc", "-o", "numbers", directory=tmp_path)
    assert run("./numbers", directory=tmp_path) == "0 1 4 9 "


@pytest.mark.parametrize(
    "flags",
    [
        ["-mretpoline"],
        ["-mlvi-hardening"],
        ["-mseses"],
        ["-flto", "-fenable-matrix"],
        ["-flto", "-fsanitize=undefined"],
        ["-flto", "-g", "-fdebug-info-for-profiling"],
    ],
    ids=" ".join,
)
def test_options_that_stock_clang_accepts_work(toolchain: Path, tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "sum.c").write_text(
        "#include <stdio.h>\n"
        "static int sum(int n) { int all = 0; for (int i = 0; i < n; ++i) all += i * n; return all; }\n"
        "int (*volatile add)(int) = sum;\n"
        "#if defined(__clang__) && __has_extension(matrix_types)\n"
        "typedef float m4 __attribute__((matrix_type(4, 4)));\nm4 a, b, c;\nvoid product(void) { c = a * b; }\n"
        "#else\nvoid product(void) {}\n#endif\n"
        'int main(int argc, char **argv) { product(); printf("%d", add(argc + 4)); return 0; }\n'
    )
    linker = ["-fsanitize-trap=undefined"] if "-fsanitize=undefined" in flags else []
    run(toolchain / "bin" / "clang", "-Oz", *flags, *linker, "sum.c", "-o", "sum", directory=tmp_path)
    assert run("./sum", directory=tmp_path) == "50"


def test_response_file_with_lto_needs_no_linker(toolchain: Path, sources: Path) -> None:
    (sources / "arguments").write_text(" ".join(["-Oz", "-flto", *SOURCES, "-o", "program"]))
    run(toolchain / "bin" / "clang++", "@arguments", directory=sources)
    assert run("./program", directory=sources) != ""


def test_output_that_is_no_file_is_not_renamed(toolchain: Path, sources: Path) -> None:
    (sources / "real").write_text("")
    (sources / "program").symlink_to("real")
    command: list[str | Path] = [toolchain / "bin" / "clang++", "-Oz", "-flto", *KEEP_SMALLER, *SOURCES]
    done = subprocess.run([*command, "-o", "program"], cwd=sources, capture_output=True, text=True)
    assert done.returncode == 0
    assert "program" in done.stderr


@pytest.mark.parametrize("flags", [["-O2"], ["-g", "-gsplit-dwarf"], ["--target=x86_64-pc-windows-msvc"]], ids=" ".join)
def test_variants_that_are_not_compiled_are_named(toolchain: Path, tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "f.c").write_text("int g(int); int f(int x) { return g(x) + g(x + 1); }\n")
    command = [toolchain / "bin" / "clang", "-Oz", "-mllvm", "-mlgo-keep-smaller", *flags, "-c", "f.c"]
    done = subprocess.run([str(part) for part in command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0
    assert ("one variant" in done.stderr) == ("--target=x86_64-pc-windows-msvc" not in flags)


def test_equal_source_names_are_chosen_apart(toolchain: Path, sources: Path) -> None:
    """One choices file serves a build whose directories each have a main.cc."""
    clang, choices = toolchain / "bin" / "clang++", ["-mllvm", "-mlgo-keep-smaller", "-mllvm", "-mlgo-choices=choices"]
    run(clang, "-Oz", *choices, "-c", "main.cc", directory=sources)
    (sources / "main.cc").write_text((sources / "table.cc").read_text())
    run(clang, "-Oz", *choices, "-c", "main.cc", directory=sources)
    first, second = map(json.loads, (sources / "choices").read_text().splitlines())
    assert first["name"] == second["name"] and first["digest"] != second["digest"]


def test_smaller_object_is_kept(toolchain: Path, sources: Path) -> None:
    clang = toolchain / "bin" / "clang++"

    def compile_object(name: str, *flags: str) -> bytes:
        arguments = [part for flag in flags for part in ("-mllvm", flag)]
        run(clang, "-Oz", *arguments, "-c", f"{name}.cc", "-o", f"{name}.o", directory=sources)
        return (sources / f"{name}.o").read_bytes()

    for name in ("table", "main"):
        variants = {
            "heuristic": compile_object(name, "-enable-ml-inliner=default"),
            "policy": compile_object(name, "-enable-ml-inliner=release"),
        }
        smallest = compile_object(name, "-mlgo-keep-smaller", "-mlgo-choices=choices")
        choice = json.loads((sources / "choices").read_text().splitlines()[-1])
        assert choice["name"] == f"{name}.cc" and smallest == variants[choice["variant"]]
        assert choice["bytes"][choice["variant"]] == min(choice["bytes"].values())
    assert not list(sources.glob("*.mlgo-*")) and not list(sources.glob("*.tmp"))
