"""Compilers for the build of a project by any build system: scripts that run clang with flags behind the build's own.

A project may append its own optimization level to that of the user: CMake's build types, -O2 in a Makefile, options of
a target. These scripts append theirs last.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from components.core.compiler.clang_programs import clangxx

C_NAMES, CXX_NAMES = ("clang", "cc", "gcc"), ("clang++", "c++", "g++")
"""Names of the scripts, because Makefiles call compilers by their names."""
_NATIVE = rf"(?:{re.escape(platform.machine())}-(?:pc-|redhat-|suse-)?linux(?:-gnu)?-)?"
_INSTALLED = re.compile(rf"{_NATIVE}(?:(?P<c>cc|gcc|clang|c89|c99)|c\+\+|g\+\+|clang\+\+)(?:-[0-9.]+)?")
_INSTALLED_BINUTILS = re.compile(rf"{_NATIVE}(?:gcc-|llvm-)?(?P<program>ar|nm|ranlib|strip)(?:-[0-9.]+)?")
_INSTALLED_READER = re.compile(rf"{_NATIVE}(?:elfedit|objcopy|objdump|readelf|size)")
"""GNU's programs that understand ELF only. LLVM's nm and ar, which builds get, understand bitcode."""
_INSTALLED_LINKER = re.compile(rf"{_NATIVE}ld(?:\.bfd|\.gold)?")
_RELOCATABLE_LINK = re.compile(r"-fuse-ld=.*|-f(?:no-)?lto.*|-Wl,-mllvm,.*|-Wl,--load-pass-plugin=.*")
_SHEBANG = "#!/bin/sh\n"
_SCRIPT_WITHOUT_FLAGS = """\
exec PROGRAM "$@"
"""
_SCRIPT = """\
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
# A link to an object (-r) drops and folds nothing: lld refuses these flags there.
case " $* " in *' -r '* | *' -Wl,-r '* | *' -Wl,--relocatable '*) exec PROGRAM "$@" FLAGS ;; esac
"""
_ASSEMBLY = """\
case " $* " in *' -S '*) exec PROGRAM "$@" FLAGS ;; esac
"""
_IF_BITCODE = """\
# PROGRAM reads no bitcode, which is what objects and archives of LTO have.
bitcode=$(printf 'BC\\300\\336')
index=0 files=
for word; do
  index=$((index + 1))
  case $word in *.o | *.lo | *.obj | *.a | *.os) files="$files \\"\\${$index}\\"" ;; esac
done
# NUL ends a line (-z): grep holds a whole line in memory.
if [ -n "$files" ] && eval "LC_ALL=C grep -qazF -e \\"\\$bitcode\\" -- $files" 2>/dev/null; then COMMAND; fi
exec PROGRAM "$@"
"""
_RECORDED = """\
# Links go through RECORDER, but for those of configure's and other checks. Only it reads response files.
case "$MLGO_LINK $PWD $* " in
recorded* | *' -c '* | *' -E '* | *' -S '* | *' -M '* | *' -MM '* | *' -fsyntax-only '*) ;;
*conftest* | *cmTC_* | *CMakeFiles/CMakeTmp* | *CMakeFiles/CMakeScratch* | */CompilerId* | *meson-private*) ;;
*) exec RECORDER "$0" "$@" ;;
esac
"""
_RECORDS = """\
# What runs, and the headers that clang reads, for a comparison with the user's compiler.
if [ -w DIRECTORY ]; then
  printf '%s\\0' $(($# + 2)) "$PWD" "${0##*/}" "$@" >>DIRECTORY/$$
  export CC_PRINT_HEADERS=1 CC_PRINT_HEADERS_FILE=DIRECTORY/$$SUFFIX
  case " $*" in
  *' @'*)  # ninja removes its response files
    for word; do
      case $word in @*) ! [ -f "${word#@}" ] || printf '%s\\0' 3 "$PWD" "$word" "$(cat "${word#@}")" ;; esac
    done >>DIRECTORY/$$ARGUMENTS ;;
  esac
fi
"""
_RECORDED_READER = """\
[ ! -w DIRECTORY ] || printf '%s\\0' $(($# + 2)) "$PWD" "${0##*/}" "$@" >>DIRECTORY/$$SUFFIX"""
HEADERS, RESPONSE_FILES, READERS = ".headers", ".response-files", ".readers"
"""Suffixes of the records of headers, of response files, and of programs that got an object of LTO and understand ELF
only."""
_DROPPED = """\
# A link may have thousands of words: `set` copies them all, and is called once.
index=0 kept=
for word; do
  index=$((index + 1))
  case $word in
  DROPPED) continue ;;
  -Wa,* | -Wl,*)
    word=$word,
    for part in PARTS; do
      case $word in "${part%%,*}"*",${part#*,},"*) word=${word%%",${part#*,},"*},${word#*",${part#*,},"} ;; esac
    done
    word=${word%,}
    case $word in -Wa | -Wl) continue ;; esac
    eval "word$index=\\$word"
    kept="$kept \\"\\$word$index\\"" ;;
  *) kept="$kept \\"\\${$index}\\"" ;;
  esac
done
eval "set -- $kept"
"""
_JOINED = ("-Wa,", "-Wl,")
"""Options with a list of options, of which single ones are dropped."""
SCRIPT_DIRECTORY = "SCRIPT_DIRECTORY"
"""In a program's path and in flags, the directory that the script is in."""


def installed_names(path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of native C and of C++ compilers in the directories of a PATH, such as g++-12, for builds that
    look for a version or call the triple's."""
    names: dict[bool, set[str]] = {True: set(C_NAMES), False: set(CXX_NAMES)}
    for name in _programs(path):
        if match := _INSTALLED.fullmatch(name):
            names[match["c"] is not None].add(name)
    return tuple(sorted(names[True])), tuple(sorted(names[False]))


def _programs(path: str) -> Iterator[str]:
    for directory in path.split(os.pathsep):
        with suppress(OSError):
            yield from os.listdir(directory)


def write_compilers(
    directory: Path,
    clang: Path,
    flags: Sequence[str],
    link_flags: Sequence[str] = (),
    assembly_flags: Sequence[str] = (),
    names: tuple[Sequence[str], Sequence[str]] = (C_NAMES, CXX_NAMES),
    dropped: Sequence[str] = (),
    recorder: str = "",
    cxx: Path | None = None,
    default_flags: Sequence[str] = (),
    records: str = "",
) -> None:
    """Write scripts that run a clang and its clang++ with flags behind the other options, so that they win.

    Args:
        directory: directory of the scripts, which exists.
        names: names of the scripts of C and of C++.
        dropped: words that are left out of every command line; -Wl,OPTION and -Wa,OPTION also in lists of options.
        flags: flags of every call; with -Qunused-arguments those of a compile are accepted at a link and vice versa.
        link_flags: further flags of every call; links to an object get those of LTO and of the linker's choice.
        assembly_flags: flags that replace the others with -S.
        recorder: program that runs the links, see build_links/record-link; "" for none.
        cxx: the clang++; None for the one next to `clang`.
        default_flags: flags of every call of the C compiler that the command's own options replace.
        records: directory in which the scripts record what they run, as long as it exists; "" for none.
    """
    programs = (clang, default_flags), (cxx or clangxx(clang), ())
    for own, (program, defaults) in zip(names, programs, strict=True):
        for name in own:
            write_script(
                directory / name, program, flags, link_flags, assembly_flags, dropped, recorder, defaults, records
            )


def write_binutils(directory: Path, binutils: Mapping[str, Path], path: str = "", options: Sequence[str] = ()) -> None:
    """Write scripts that run binutils, by their names, each also as llvm-NAME, which CMake prefers, and under the names
    of native ones in the directories of a PATH, such as gcc-ar. The options are the first of every call."""
    for name, program in binutils.items():
        for alias in (name, f"llvm-{name}"):
            write_script(directory / alias, program, default_flags=options)
    for alias in _programs(path):
        match = _INSTALLED_BINUTILS.fullmatch(alias)
        if match and match["program"] in binutils:
            write_script(directory / alias, binutils[match["program"]], default_flags=options)


def write_bitcode_tools(directory: Path, lld: Path, options: Sequence[str], path: str, records: str = "") -> None:
    """Write `ld` and `strip`, also under the names of native ones in a PATH, for objects and archives of LTO.

    `ld` runs lld where one is an input, and otherwise the linker of a PATH. `strip` leaves them as they are: they have
    no symbols or debug data that are linked.

    Args:
        lld: a linker that reads bitcode.
        options: its options of LTO.
        records: directory in which programs that understand ELF only are recorded when they get such an object; "" for
            none.
    """
    llvm_strip = f"{SCRIPT_DIRECTORY}/llvm-strip"
    programs = {"ld": str(lld), "strip": llvm_strip}
    for name in _programs(path):
        if match := _INSTALLED_BINUTILS.fullmatch(name):
            programs |= {name: llvm_strip} if match["program"] == "strip" and name != "llvm-strip" else {}
        elif _INSTALLED_LINKER.fullmatch(name):
            programs[name] = shutil.which(name, path=path) or str(lld)
    run_lld = f'exec {shlex.quote(str(lld))} "$@" {shlex.join(options)}'
    for name, program in programs.items():
        command = "exit 0" if program == llvm_strip else run_lld
        write_executable(directory / name, fill_template(_IF_BITCODE, PROGRAM=shlex.quote(program), COMMAND=command))
    if records:
        record = fill_template(_RECORDED_READER, DIRECTORY=shlex.quote(records), SUFFIX=READERS)
        for name in _programs(path):
            if _INSTALLED_READER.fullmatch(name) and (reader := shutil.which(name, path=path)):
                text = fill_template(_IF_BITCODE, PROGRAM=shlex.quote(reader), COMMAND=record)
                write_executable(directory / name, text)


def write_script(
    path: Path,
    program: str | Path,
    flags: Sequence[str] = (),
    link_flags: Sequence[str] = (),
    assembly_flags: Sequence[str] = (),
    dropped: Sequence[str] = (),
    recorder: str = "",
    default_flags: Sequence[str] = (),
    records: str = "",
) -> None:
    """Write a script that runs `program` with the command's options but `dropped`, and behind them the flags.

    With a `recorder`, that runs the script again for a link. For the other arguments see `write_compilers`.
    """
    word = shlex.join([str(program), *default_flags])
    text = (
        fill_template(_RECORDS, DIRECTORY=shlex.quote(records), SUFFIX=HEADERS, ARGUMENTS=RESPONSE_FILES)
        if records
        else ""
    )
    if recorder:
        text += fill_template(_RECORDED, RECORDER=recorder)
    if dropped:
        parts = shlex.join(part for part in dropped if part.startswith(_JOINED))
        text += fill_template(_DROPPED, DROPPED="|".join(map(shlex.quote, dropped)), PARTS=parts)
    if assembly_flags:
        text += fill_template(_ASSEMBLY, PROGRAM=word, FLAGS=shlex.join(assembly_flags))
    if link_flags:
        kept = [flag for flag in link_flags if _RELOCATABLE_LINK.fullmatch(flag)]
        text += fill_template(_RELOCATABLE, PROGRAM=word, FLAGS=shlex.join([*flags, *kept]))
    everything = [*flags, *link_flags]
    text += fill_template(_SCRIPT if everything else _SCRIPT_WITHOUT_FLAGS, PROGRAM=word, FLAGS=shlex.join(everything))
    write_executable(path, text)


def fill_template(template: str, **values: str) -> str:
    """Return a template with values for its names; a value, such as a path, may have another's name in it."""
    return re.sub("|".join(values), lambda match: values[match[0]], template)


def write_executable(path: Path, text: str) -> None:
    """Write a script of sh, without its first line, in which SCRIPT_DIRECTORY stands for the script's own."""
    path.write_text(_SHEBANG + text.replace(SCRIPT_DIRECTORY, '"${0%/*}"'), encoding="utf-8")
    path.chmod(0o755)
