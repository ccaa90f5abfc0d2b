"""The command `mlgo corpus compilers`: compilers for the build of a project by any build system."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from components.core import problems
from components.core.compiler.clang_programs import clang_version, require_binutils
from components.core.projects.build_links.recorded import write_link_recorder
from components.core.projects.compiler_scripts import SCRIPT_DIRECTORY, write_binutils, write_compilers
from components.core.projects.extraction_options import Unit
from components.core.projects.link_recorder.recorder import (
    COMPILE_FLAGS,
    find_lld,
    link_flags,
    write_recording_linkers,
)
from components.corpus.options import UNIT, require_size_level
from components.platform.console import say
from components.platform.console.number_types import COUNT
from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.options import OUTPUT, TREE

# Objects of LTO are bitcode as a whole, compiled at the link. Links have no use for the other flags.
_EVERYWHERE = ("-fno-lto", "-Qunused-arguments")
_EMBED = ("-Xclang", "-fembed-bitcode=all")


@click.command()
@click.option("--clang", default="clang-19", show_default=True, help="C compiler: a name or a path.")
@click.option(
    "--release",
    type=TREE,
    help="Directory of a release clang: write compilers that use its policy, without bitcode, in place of --clang.",
)
@click.option(
    "--problem",
    type=click.Choice(problems.names()),
    default="inlining",
    show_default=True,
    help="Problem that determines the optimization level and the policy.",
)
@click.option(
    "--unit",
    type=UNIT,
    default="object",
    show_default=True,
    help="Unit of the corpus. program: compile to bitcode and record each link, for extract --unit program.",
)
@click.option("--memory-gib", type=COUNT, help="Limit of the memory of each link of --unit program.")
@click.option("--output", type=OUTPUT, required=True, help="Directory of the compilers.")
def compilers(clang: str, release: Path | None, problem: str, unit: Unit, memory_gib: int | None, output: Path) -> None:
    """Write compilers for a project's build: clang and clang++ at a problem's level, whatever the build appends.

    They embed the bitcode that a corpus is made of and compile without LTO. Linked files are without it, and each link
    is recorded in the directory, for the report on linked programs. ar, nm, ranlib and strip are LLVM's: GNU's
    may write no index for objects with bitcode. For builds that call them by name, put the directory first in PATH: cc,
    gcc, c++ and g++ are clang, too.

    \b
    Example: build with CMake, or with configure and make
      mlgo corpus compilers --output compilers
      cmake -B build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_BUILD_TYPE=Release \\
        -DCMAKE_C_COMPILER=$PWD/compilers/clang -DCMAKE_CXX_COMPILER=$PWD/compilers/clang++
      export PATH=$PWD/compilers:$PATH; ./configure CC=clang CXX=clang++ && make
    Example: a corpus of whole programs
      mlgo corpus compilers --unit program --output compilers
      cmake -B build -DCMAKE_C_COMPILER=$PWD/compilers/clang -DCMAKE_CXX_COMPILER=$PWD/compilers/clang++
      cmake --build build && mlgo corpus extract --unit program --input compilers --output corpus
    """
    if unit == "program" and release:
        raise UserError("--unit program writes no compilers of --release", "omit one of the two options")
    if unit == "object" and memory_gib:
        raise UserError("--memory-gib limits the links of --unit program", "omit it, or pass --unit program")
    definition = problems.get(problem)
    if unit == "program":
        require_size_level(definition)
    c = _find_program(
        str(release / "bin" / "clang") if release else clang,
        "pass the directory of a toolchain with a policy: mlgo toolchain --mode release --help"
        if release
        else "install clang-19, or pass --clang with the path of another clang",
    )
    binutils = {} if release else require_binutils(c, "archives need that hold objects with bitcode")
    options = [word for option in definition.llvm.release_options for word in ("-mllvm", option)] if release else _EMBED
    flags = [definition.optimization, *options, *_EVERYWHERE]
    lld = find_lld(c) if unit == "program" else None
    if lld:
        flags = list(dict.fromkeys([definition.optimization, *COMPILE_FLAGS, *link_flags(SCRIPT_DIRECTORY)]))
    with publish(output, "set of compilers") as directory:
        if lld:
            write_recording_linkers(directory, lld, definition.optimization, memory_gib or 0)
        # A build that assembles what it compiled with -S needs assembly, not LLVM's.
        assembly_flags = [definition.optimization, *_EVERYWHERE] if lld else []
        # Programs by a release clang are what users ship, and nothing is made of their links.
        recorder = "" if lld or release else write_link_recorder(directory, c)
        write_compilers(directory, c, flags, assembly_flags=assembly_flags, recorder=recorder)
        write_binutils(directory, binutils)
    say(f"{output}: clang and clang++ that append {' '.join(flags).replace(SCRIPT_DIRECTORY, str(output))}")


def _find_program(clang: str, remedy: str) -> Path:
    path = shutil.which(clang)
    if path is None:
        raise UserError(f"there is no compiler {clang}", remedy)
    clang_version(path, remedy)
    return Path(path).absolute()
