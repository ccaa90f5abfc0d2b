"""The release toolchain compiles programs of -Oz as one module, and keeps the smaller of two variants."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from components.core.compiler.elf import Elf
from tests.components.toolchain.test_linker import SOURCES, STOCK, sources, toolchain

pytestmark = pytest.mark.toolchain
__all__ = ["sources", "toolchain"]

LLVM_PIPELINE = ["-mllvm", "-mlgo-whole-program=0", "-Wl,-mllvm,-mlgo-whole-program=0"]
KEEP_SMALLER = ["-Wl,-mllvm,-mlgo-keep-smaller"]
EQUAL_BODIES = """
#include <stdio.h>
__attribute__((noinline)) int first(int x) { return printf("%d", x) * 3 + x; }
__attribute__((noinline)) int second(int x) { return printf("%d", x) * 3 + x; }
static int (*volatile a)(int) = first, (*volatile b)(int) = second;
int main(void) { printf("%d", first(1) + second(2)); return a == b; }
"""


def run(*command: str | Path, directory: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


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


def test_training_clang_makes_the_linkers_object(toolchain: Path, training_toolchain: Path, sources: Path) -> None:
    link(toolchain / "bin" / "clang++", sources, "ours", "-Wl,--save-temps=internalize", "-Wl,--lto-obj-path=linked.o")
    module = sources / "ours.0.2.internalize.bc"
    flags = ["-Oz", "-fPIE", "-ffunction-sections", "-fdata-sections", "-mllvm", "-mlgo-program"]
    flags += ["-Xclang", "-main-file-name", "-Xclang", "ld-temp.o", "-Qunused-arguments"]
    run(training_toolchain / "bin" / "clang", *flags, "-x", "ir", "-c", module, "-o", "compiled.o", directory=sources)
    assert (sources / "compiled.o").read_bytes() == (sources / "linked.o").read_bytes()


def test_type_tests_are_left_to_llvms_pipeline(toolchain: Path, sources: Path) -> None:
    (sources / "shapes.cc").write_text(
        "#include <cstdio>\nstruct Shape { virtual int corners() const = 0; virtual ~Shape() {} };\n"
        "struct Square : Shape { int corners() const override { return 4; } };\n"
        "struct Line : Shape { int corners() const override { return 2; } };\n"
        "__attribute__((noinline)) int count(const Shape *s) { return s->corners(); }\n"
        "int main(int argc, char **) { Square s; Line l;"
        ' std::printf("%d %d", count(&s), count(argc > 5 ? (Shape *)&s : &l)); }\n'
    )
    clang = toolchain / "bin" / "clang++"
    run(
        clang,
        "-Oz",
        "-flto",
        "-fvisibility=hidden",
        "-fwhole-program-vtables",
        "shapes.cc",
        "-o",
        "shapes",
        directory=sources,
    )
    assert run("./shapes", directory=sources) == "4 2"


def test_addresses_that_are_compared_stay_different(toolchain: Path, tmp_path: Path) -> None:
    (tmp_path / "equal.c").write_text(EQUAL_BODIES)
    flags = ["-Oz", "-mllvm", "-mlgo-fold=1"]
    for extra in ([], ["-flto", "-Wl,--icf=safe"]):
        run(toolchain / "bin" / "clang", *flags, *extra, "equal.c", "-o", "equal", directory=tmp_path)
        run("./equal", directory=tmp_path)


def test_smaller_program_is_kept_and_chosen_again(toolchain: Path, sources: Path) -> None:
    clang = toolchain / "bin" / "clang++"
    choices = ["-Wl,-mllvm,-mlgo-choices=choices"]
    variants = {
        "heuristic": link(clang, sources, "program"),
        "policy": link(clang, sources, "program", "-Wl,-mllvm,-enable-ml-inliner=release"),
    }
    kept = link(clang, sources, "program", *KEEP_SMALLER, *choices)
    (line,) = (sources / "choices").read_text().splitlines()
    choice = json.loads(line)
    assert choice["name"] == "program" and set(choice["bytes"]) == set(variants)
    assert kept == variants[choice["variant"]]
    assert choice["bytes"][choice["variant"]] == min(choice["bytes"].values())
    assert not list(sources.glob("*.mlgo-*"))
    # The recorded choice is taken, whatever is smaller.
    for name, program in variants.items():
        (sources / "choices").write_text(json.dumps({"name": "program", "variant": name}) + "\n")
        assert link(clang, sources, "program", *KEEP_SMALLER, *choices) == program


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
        kept = compile_object(name, "-mlgo-keep-smaller", "-mlgo-choices=choices")
        choice = json.loads((sources / "choices").read_text().splitlines()[-1])
        assert choice["name"] == f"{name}.cc" and kept == variants[choice["variant"]]
        assert choice["bytes"][choice["variant"]] == min(choice["bytes"].values())
    assert not list(sources.glob("*.mlgo-*")) and not list(sources.glob("*.tmp"))


def test_failing_link_of_variants_reports_once_and_leaves_nothing(toolchain: Path, sources: Path) -> None:
    (sources / "main.cc").write_text("int missing(); int main() { return missing(); }\n")
    before = set(sources.iterdir())
    command: list[str | Path] = [toolchain / "bin" / "clang++", "-Oz", "-flto", *KEEP_SMALLER, *SOURCES]
    done = subprocess.run([*command, "-o", "program"], cwd=sources, capture_output=True, text=True)
    assert done.returncode != 0 and done.stderr.count("undefined symbol: missing()") == 1
    assert set(sources.iterdir()) == before
