"""Compilers for the build of a project by any build system: scripts that run clang with flags behind the build's own.

A project may append its own optimization level to that of the user: CMake's build types, -O2 in a Makefile, options of
a target. These scripts append theirs last.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from components.core.compiler.clang_programs import clangxx

C_NAMES, CXX_NAMES = ("clang", "cc", "gcc"), ("clang++", "c++", "g++")
"""Names of the scripts, because Makefiles call compilers by their names."""
_INSTALLED = re.compile(
    rf"(?:{re.escape(platform.machine())}-(?:pc-|redhat-|suse-)?linux(?:-gnu)?-)?"
    r"(?:(?P<c>cc|gcc|clang|c89|c99)|c\+\+|g\+\+|clang\+\+)(?:-[0-9.]+)?"
)
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
_RECORDED = """\
#!/bin/sh
# Links go through RECORDER, but for those of configure's and other checks. Only it reads response files.
case "$MLGO_LINK $PWD $* " in
recorded* | *' -c '* | *' -E '* | *' -S '* | *' -M '* | *' -MM '* | *' -fsyntax-only '*) ;;
*conftest* | *cmTC_* | *CMakeFiles/CMakeTmp* | *CMakeFiles/CMakeScratch* | */CompilerId* | *meson-private*) ;;
*) exec RECORDER "$0" "$@" ;;
esac
"""
_DROPPED = """\
#!/bin/sh
for word; do
  shift
  case $word in DROPPED) ;; *) set -- "$@" "$word" ;; esac
done
"""
SCRIPT_DIRECTORY = "SCRIPT_DIRECTORY"
"""In a program's path and in flags, the directory that the script is in."""


def installed_names(path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of native C and of C++ compilers in the directories of a PATH, such as g++-12, for builds that
    look for a version or call the triple's."""
    names: dict[bool, set[str]] = {True: set(C_NAMES), False: set(CXX_NAMES)}
    for directory in path.split(os.pathsep):
        with suppress(OSError):
            for name in os.listdir(directory):
                if match := _INSTALLED.fullmatch(name):
                    names[match["c"] is not None].add(name)
    return tuple(sorted(names[True])), tuple(sorted(names[False]))


def write_compilers(
    directory: Path,
    clang: Path,
    flags: Sequence[str],
    link_flags: Sequence[str] = (),
    assembly_flags: Sequence[str] = (),
    names: tuple[Sequence[str], Sequence[str]] = (C_NAMES, CXX_NAMES),
    dropped: Sequence[str] = (),
    recorder: str = "",
) -> None:
    """Write scripts that run a clang and its clang++ with flags behind the other options, so that they win.

    Args:
        directory: directory of the scripts, which exists.
        names: names of the scripts of C and of C++.
        dropped: words that are left out of every command line.
        flags: flags of every call; with -Qunused-arguments those of a compile are accepted at a link and vice versa.
        link_flags: further flags of every call but links to an object.
        assembly_flags: flags that replace the others with -S.
        recorder: program that runs the links, see build_links/record-link; "" for none.
    """
    for own, program in zip(names, (clang, clangxx(clang)), strict=True):
        for name in own:
            write_script(directory / name, program, flags, link_flags, assembly_flags, dropped, recorder)


def write_binutils(directory: Path, binutils: Mapping[str, Path]) -> None:
    """Write scripts that run LLVM's binutils, by their names, each also as llvm-NAME, which CMake prefers."""
    for name, program in binutils.items():
        for alias in (name, f"llvm-{name}"):
            write_script(directory / alias, program)


def write_script(
    path: Path,
    program: str | Path,
    flags: Sequence[str] = (),
    link_flags: Sequence[str] = (),
    assembly_flags: Sequence[str] = (),
    dropped: Sequence[str] = (),
    recorder: str = "",
) -> None:
    """Write a script that runs `program` with the command's options but `dropped`, and behind them the flags.

    With a `recorder`, that runs the script again for a link.
    """
    everything = [*flags, *link_flags]
    text = _SCRIPT if everything else _SCRIPT_WITHOUT_FLAGS
    text = text.replace("FLAGS", shlex.join(everything))
    if link_flags:
        text = _RELOCATABLE.replace("FLAGS", shlex.join(flags)) + text.removeprefix("#!/bin/sh\n")
    if assembly_flags:
        text = _ASSEMBLY.replace("FLAGS", shlex.join(assembly_flags)) + text.removeprefix("#!/bin/sh\n")
    if dropped:
        words = "|".join(shlex.quote(word) for word in dropped)
        text = _DROPPED.replace("DROPPED", words) + text.removeprefix("#!/bin/sh\n")
    if recorder:
        text = _RECORDED.replace("RECORDER", recorder) + text.removeprefix("#!/bin/sh\n")
    text = text.replace("PROGRAM", shlex.quote(str(program)))
    path.write_text(text.replace(SCRIPT_DIRECTORY, '"${0%/*}"'))
    path.chmod(0o755)
