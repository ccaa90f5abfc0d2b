"""The command `mlgo corpus compilers`: compilers for the build of a project by any build system.

A project may append its own optimization level to that of the user: CMake's build types, -O2 in a Makefile, options of
a target. These compilers append theirs last.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import click

from components.core import problems
from components.core.console import UserError, say
from components.core.projects.build import BINUTILS, clang_version, clangxx, llvm_binutils
from components.core.storage import publish
from components.core.storage.options import OUTPUT, TREE

_C, _CXX = ("clang", "cc", "gcc"), ("clang++", "c++", "g++")
# Objects of LTO are bitcode as a whole, compiled at the link. Links have no use for the other flags.
_EVERYWHERE = ("-fno-lto", "-Qunused-arguments")
_EMBED = ("-Xclang", "-fembed-bitcode=all")
_SCRIPT_WITHOUT_FLAGS = """\
#!/bin/sh
exec PROGRAM "$@"
"""
_SCRIPT = """\
#!/bin/sh
case " $* " in *' -- '*) ;; *) exec PROGRAM "$@" FLAGS ;; esac
# What follows -- are files.
added=
for word; do
  shift
  if [ "$word" = -- ] && [ -z "$added" ]; then
    set -- "$@" FLAGS
    added=true
  fi
  set -- "$@" "$word"
done
[ -n "$added" ] || set -- "$@" FLAGS
exec PROGRAM "$@"
"""


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
@click.option("--output", type=OUTPUT, required=True, help="Directory of the compilers.")
def compilers(clang: str, release: Path | None, problem: str, output: Path) -> None:
    """Write compilers for a project's build: clang and clang++ at a problem's level, whatever the build appends.

    They embed the bitcode that a corpus is made of and compile without LTO. ar, nm, ranlib and strip are LLVM's: GNU's
    may write no index for objects with bitcode. For builds that call them by name, put the directory first in PATH: cc,
    gcc, c++ and g++ are clang, too.

    \b
    Example: build with CMake, or with configure and make
      mlgo corpus compilers --output compilers
      cmake -B build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_BUILD_TYPE=Release \\
        -DCMAKE_C_COMPILER=$PWD/compilers/clang -DCMAKE_CXX_COMPILER=$PWD/compilers/clang++
      export PATH=$PWD/compilers:$PATH; ./configure CC=clang CXX=clang++ && make
    """
    wanted = problems.get(problem)
    c = _program(
        str(release / "bin" / "clang") if release else clang,
        "pass the directory of a toolchain with a policy: mlgo toolchain --mode release --help"
        if release
        else "install clang-19, or pass --clang with the path of another clang",
    )
    binutils = {} if release else _all_binutils(c)
    options = [word for option in wanted.llvm.release_options for word in ("-mllvm", option)] if release else _EMBED
    flags = [wanted.optimization, *options, *_EVERYWHERE]
    with publish(output, "set of compilers") as directory:
        for names, compiler in ((_C, c), (_CXX, clangxx(c))):
            for name in names:
                _write(directory / name, compiler, flags)
        for name, program in binutils.items():
            for alias in (name, f"llvm-{name}"):  # the second is what CMake prefers, there or in PATH
                _write(directory / alias, program, [])
    say(f"{output}: clang and clang++ that append {' '.join(flags)}")


def _program(clang: str, remedy: str) -> Path:
    found = shutil.which(clang)
    if found is None:
        raise UserError(f"there is no compiler {clang}", remedy)
    clang_version(found, remedy)
    return Path(found).absolute()


def _all_binutils(clang: Path) -> dict[str, Path]:
    """Return LLVM's binutils of a clang. UserError if one is missing."""
    found = llvm_binutils(clang)
    if missing := [f"llvm-{name}" for name in BINUTILS if name not in found]:
        raise UserError(
            f"{clang.resolve().parent} has no {', '.join(missing)}, which archives need that hold objects with bitcode",
            "install the package llvm of the same version, such as llvm-19",
        )
    return found


def _write(script: Path, program: Path, flags: list[str]) -> None:
    """Write a script that runs a program with flags behind the other options, so that they win."""
    text = _SCRIPT if flags else _SCRIPT_WITHOUT_FLAGS
    script.write_text(text.replace("PROGRAM", shlex.quote(str(program))).replace("FLAGS", shlex.join(flags)))
    script.chmod(0o755)
