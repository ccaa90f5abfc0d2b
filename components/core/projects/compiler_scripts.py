"""Compilers for the build of a project by any build system: scripts that run clang with flags behind the build's own.

A project may append its own optimization level to that of the user: CMake's build types, -O2 in a Makefile, options of
a target. These scripts append theirs last.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from components.core.compiler.clang_programs import clangxx

C_NAMES, CXX_NAMES = ("clang", "cc", "gcc"), ("clang++", "c++", "g++")
"""Names of the scripts, because Makefiles call compilers by their names."""
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
_RELOCATABLE = """\
#!/bin/sh
# A link to an object (-r) drops and folds nothing: lld refuses these flags there.
case " $* " in *' -r '* | *' -Wl,-r '* | *' -Wl,--relocatable '*) exec PROGRAM "$@" FLAGS ;; esac
"""
_ASSEMBLY = """\
#!/bin/sh
case " $* " in *' -S '*) exec PROGRAM "$@" FLAGS ;; esac
"""
SCRIPT_DIRECTORY = "SCRIPT_DIRECTORY"
"""In a program's path and in flags, the directory that the script is in."""


def write_compilers(
    directory: Path,
    clang: Path,
    flags: Sequence[str],
    link_flags: Sequence[str] = (),
    assembly_flags: Sequence[str] = (),
) -> None:
    """Write scripts that run a clang and its clang++ with flags behind the other options, so that they win.

    Args:
        directory: directory of the scripts, which exists.
        flags: flags of every call; with -Qunused-arguments those of a compile are accepted at a link and vice versa.
        link_flags: further flags of every call but links to an object.
        assembly_flags: flags that replace the others with -S.
    """
    for names, program in ((C_NAMES, clang), (CXX_NAMES, clangxx(clang))):
        for name in names:
            write_script(directory / name, program, flags, link_flags, assembly_flags)


def write_binutils(directory: Path, binutils: Mapping[str, Path]) -> None:
    """Write scripts that run the programs of `build.llvm_binutils`, each also as llvm-NAME, which CMake prefers."""
    for name, program in binutils.items():
        for alias in (name, f"llvm-{name}"):
            write_script(directory / alias, program)


def write_script(
    path: Path,
    program: str | Path,
    flags: Sequence[str] = (),
    link_flags: Sequence[str] = (),
    assembly_flags: Sequence[str] = (),
) -> None:
    """Write a script that runs `program` with the command's own options and behind them the flags."""
    everything = [*flags, *link_flags]
    text = _SCRIPT if everything else _SCRIPT_WITHOUT_FLAGS
    text = text.replace("FLAGS", shlex.join(everything))
    if link_flags:
        text = _RELOCATABLE.replace("FLAGS", shlex.join(flags)) + text.removeprefix("#!/bin/sh\n")
    if assembly_flags:
        text = _ASSEMBLY.replace("FLAGS", shlex.join(assembly_flags)) + text.removeprefix("#!/bin/sh\n")
    text = text.replace("PROGRAM", shlex.quote(str(program)))
    path.write_text(text.replace(SCRIPT_DIRECTORY, '"${0%/*}"'))
    path.chmod(0o755)
