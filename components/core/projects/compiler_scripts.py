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
_COMPILERS = r"(?:(?P<c>cc|gcc|clang|c89|c99)|c\+\+|g\+\+|clang\+\+)(?:-[0-9.]+)?"
_BINUTILS = r"(?:gcc-|llvm-)?(?P<program>ar|nm|ranlib|strip)(?:-[0-9.]+)?"
_READERS = r"(?:llvm-|eu-|g)?(?:elfedit|hd|hexdump|objcopy|objdump|od|readelf|readobj|size|strings|xxd)(?:-[0-9.]+)?"
"""Programs that understand ELF only, or show bytes. LLVM's nm and ar, which builds get, understand bitcode."""
_EDITORS = r"(?:llvm-|eu-|g)?(?:elfedit|objcopy)(?:-[0-9.]+)?"
"""Programs that change an object, but not what gcc's LTO keeps in it besides its code."""
_LINKERS = r"ld(?:\.bfd|\.gold)?"
_RELOCATABLE_LINK = re.compile(r"-fuse-ld=.*|--ld-path=.*|-f(?:no-)?lto.*|-Wl,-mllvm,.*|-Wl,--load-pass-plugin=.*")
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
_ANSWER = """\
case " $* " in *' OPTION '*) echo TEXT; exit ;; esac
"""
_RELOCATABLE = """\
# A link to an object (-r) drops and folds nothing: lld refuses these flags there.
case " $* " in *' -r '* | *' -Wl,-r '* | *' -Wl,--relocatable '*) exec PROGRAM "$@" FLAGS ;; esac
"""
_ASSEMBLY = """\
case " $* " in *' -S '*) exec PROGRAM "$@" FLAGS ;; esac
"""
_IF_LTO = """\
# PROGRAM does not understand what objects and archives of LTO have.
lto=MAGIC
index=0 files=
for word; do
  index=$((index + 1))
  case $word in
  *.o | *.lo | *.obj | *.a | *.os) ;;
  -*) continue ;;
  *) [ -f "$word" ] && FILE || continue ;;
  esac
  files="$files \\"\\${$index}\\""
done
# NUL ends a line (-z): grep holds a whole line in memory.
if [ -n "$files" ] && eval "LC_ALL=C grep -qazF -e \\"\\$lto\\" -- $files" 2>/dev/null; then COMMAND; fi
exec PROGRAM "$@"
"""
_SIZES_BY_NM = """\
# Of objects of LTO it knows no sizes and no addresses.
sizes=
for word; do
  case $word in --print-size | --size-sort | --numeric-sort) sizes=1 ;; --* | [!-]*) ;; *[Snv]*) sizes=1 ;; esac
done
if [ -n "$sizes" ]; then
RECORD
fi
"""
_BITCODE = {"MAGIC": "$(printf 'BC\\300\\336')", "FILE": """[ "$(head -c 4 -- "$word" | tr -d '\\000')" = "$lto" ]"""}
_GNU_LTO = {"MAGIC": ".gnu.lto_", "FILE": ":"}
"""Values of _IF_LTO for objects of clang and of gcc, and for files that may be linked and have no usual suffix."""
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
  before=
  for word; do
    case $word in
    # ninja removes its response files, and make the sources that it makes by chains of rules.
    @*)
      # They may name others.
      for name in "$word" $(sed -n 's/[[:space:]][[:space:]]*/\\n/g; /@/p' "${word#@}" 2>/dev/null); do
        case $name in @*) ! [ -f "${name#@}" ] || printf '%s\\0' 3 "$PWD" "$name" "$(cat "${name#@}")" ;; esac
      done >>DIRECTORY/$$ARGUMENTS ;;
    *conftest.*) ;;
    *.c | *.cc | *.cpp | *.cxx | *.c++ | *.C)
      ! [ "$word" -nt "$0" ] || printf '%s\\0' 3 "$PWD" "$word" "$(cat "$word")" >>DIRECTORY/$$SOURCES ;;
    -) case $before in -o | -M?) ;; *) cat >DIRECTORY/$$STDIN; exec <DIRECTORY/$$STDIN ;; esac ;;
    esac
    before=$word
  done
fi
"""
_RECORD = """\
[ ! -w DIRECTORY ] || printf '%s\\0' $(($# + 2)) "$PWD" "${0##*/}" "$@" >>DIRECTORY/$$SUFFIX"""
HEADERS, RESPONSE_FILES, READERS, LINKERS = ".headers", ".response-files", ".readers", ".linkers"
"""Suffixes of the records of headers, of response files, of programs that got an object of LTO and understand ELF only,
and of linkers that got one."""
SOURCES, STDIN = ".sources", ".stdin"
"""Suffixes of the records of sources that are newer than the scripts, and of what a compiler gets as standard input."""
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


def compiler_names(path: str, prefix: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the C and the C++ compilers in the directories of a PATH that have a prefix, such as
    aarch64-linux-gnu-; without one those of native ones, such as g++-12, for builds that look for a version or call the
    triple's."""
    names: dict[bool, set[str]] = {True: set(() if prefix else C_NAMES), False: set(() if prefix else CXX_NAMES)}
    for name in _programs(path):
        if match := re.fullmatch((re.escape(prefix) or _NATIVE) + _COMPILERS, name):
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
    options: Sequence[str] = (),
    answers: Mapping[str, str] | None = None,
) -> None:
    """Write scripts that run a clang and its clang++ with flags behind the other options, so that they win.

    Args:
        names: names of the scripts of C and of C++.
        dropped: words that are left out of every command line; -Wl,OPTION and -Wa,OPTION also in lists of options.
        flags: flags of every call; with -Qunused-arguments those of a compile are accepted at a link and vice versa.
        link_flags: further flags of every call; links to an object get those of LTO and of the linker's choice.
        assembly_flags: flags that replace the others with -S.
        recorder: program that runs the links, see build_links/record-link; "" for none.
        cxx: the clang++; None for the one next to `clang`.
        default_flags: flags of every call of the C compiler that the command's own options replace.
        records: directory in which the scripts record what they run, as long as it exists; "" for none.
        options: flags of every call that the command's own options replace.
        answers: options of which a compiler prints something -> what the scripts print in its place.
    """
    prologue = ""
    for option, answer in (answers or {}).items():
        prologue += fill_template(_ANSWER, OPTION=option, TEXT=shlex.quote(answer))
    if records:
        suffixes = {"SUFFIX": HEADERS, "ARGUMENTS": RESPONSE_FILES, "SOURCES": SOURCES, "STDIN": STDIN}
        prologue += fill_template(_RECORDS, DIRECTORY=shlex.quote(records), **suffixes)
    if recorder:
        prologue += fill_template(_RECORDED, RECORDER=recorder)
    if dropped:
        parts = shlex.join(part for part in dropped if part.startswith(_JOINED))
        prologue += fill_template(_DROPPED, DROPPED="|".join(map(shlex.quote, dropped)), PARTS=parts)
    programs = (clang, (*options, *default_flags)), (cxx or clangxx(clang), options)
    for own, (program, defaults) in zip(names, programs, strict=True):
        text = prologue + _run(shlex.join([str(program), *defaults]), flags, link_flags, assembly_flags)
        for name in own:
            write_executable(directory / name, text)


def _run(program: str, flags: Sequence[str], link_flags: Sequence[str], assembly_flags: Sequence[str]) -> str:
    """Return the end of a script, which runs a program; for the flags see `write_compilers`."""
    text = ""
    if assembly_flags:
        text += fill_template(_ASSEMBLY, PROGRAM=program, FLAGS=shlex.join(assembly_flags))
    if link_flags:
        kept = [flag for flag in link_flags if _RELOCATABLE_LINK.fullmatch(flag)]
        text += fill_template(_RELOCATABLE, PROGRAM=program, FLAGS=shlex.join([*flags, *kept]))
    everything = shlex.join([*flags, *link_flags])
    return text + fill_template(_SCRIPT if everything else _SCRIPT_WITHOUT_FLAGS, PROGRAM=program, FLAGS=everything)


def write_binutils(
    directory: Path, binutils: Mapping[str, Path], path: str = "", prefixes: Sequence[str] = (), search_path: str = ""
) -> None:
    """Write scripts that run LLVM's binutils, by their names, each also as llvm-NAME, which CMake prefers, and
    under the names of native ones in the directories of a PATH, such as gcc-ar, and of those with the prefixes.

    Args:
        search_path: the programs' own PATH, "" for that of their callers. gcc-ar runs the `ar` that it finds there.
    """
    pattern = _prefixed(_BINUTILS, prefixes)
    environment = f"export PATH={shlex.quote(search_path)}\n" if search_path else ""

    def write(alias: str, program: Path) -> None:
        write_executable(directory / alias, f'{environment}exec {shlex.quote(str(program))} "$@"\n')

    for name, program in binutils.items():
        for alias in (name, f"llvm-{name}"):
            write(alias, program)
    for alias in _programs(path):
        match = pattern.fullmatch(alias)
        if match and match["program"] in binutils:
            write(alias, binutils[match["program"]])


def _prefixed(names: str, prefixes: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern of the names of native programs, and of those with prefixes."""
    return re.compile(f"(?:{'|'.join((_NATIVE, *map(re.escape, prefixes)))}){names}")


def write_bitcode_tools(
    directory: Path, lld: Path, options: Sequence[str], path: str, records: str = "", prefixes: Sequence[str] = ()
) -> None:
    """Write `ld` and `strip`, also under the names of native ones in a PATH, and of those with prefixes, for objects
    and archives of LTO.

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
    binutils, linkers = (_prefixed(names, prefixes) for names in (_BINUTILS, _LINKERS))
    for name in _programs(path):
        if match := binutils.fullmatch(name):
            programs |= {name: llvm_strip} if match["program"] == "strip" and name != "llvm-strip" else {}
        elif linkers.fullmatch(name):
            programs[name] = shutil.which(name, path=path) or str(lld)
    run_lld = f'exec {shlex.quote(str(lld))} "$@" {shlex.join(options)}'
    if records:
        run_lld = f"{fill_template(_RECORD, DIRECTORY=shlex.quote(records), SUFFIX=LINKERS)}; {run_lld}"
    for name, program in programs.items():
        command = "exit 0" if program == llvm_strip else run_lld
        text = fill_template(_IF_LTO, PROGRAM=shlex.quote(program), COMMAND=command, **_BITCODE)
        write_executable(directory / name, text)
    if records:
        _write_readers(directory, _READERS, _BITCODE, path, records, prefixes)


def write_editors(directory: Path, path: str, records: str, prefixes: Sequence[str] = ()) -> None:
    """Write the programs of a PATH that change objects, which are recorded when they get one of gcc's LTO, as is nm if
    it is asked for sizes. For the arguments see `write_bitcode_tools`."""
    _write_readers(directory, _EDITORS, _GNU_LTO, path, records, prefixes)


def _write_readers(
    directory: Path, names: str, lto: Mapping[str, str], path: str, records: str, prefixes: Sequence[str]
) -> None:
    """Write programs that are recorded when they get an object of LTO, and let the scripts of nm record that a build
    asks for sizes or addresses in one."""
    pattern, binutils = _prefixed(names, prefixes), _prefixed(_BINUTILS, prefixes)
    record = fill_template(_RECORD, DIRECTORY=shlex.quote(records), SUFFIX=READERS)
    for name in _programs(path):
        if pattern.fullmatch(name) and (program := shutil.which(name, path=path)):
            text = fill_template(_IF_LTO, PROGRAM=shlex.quote(program), COMMAND=record, **lto)
            write_executable(directory / name, text)
    test = fill_template(_IF_LTO, PROGRAM="nm", COMMAND=record, **lto).rpartition("exec ")[0]
    prologue = fill_template(_SIZES_BY_NM, RECORD=test)
    for script in directory.iterdir():
        if (match := binutils.fullmatch(script.name)) and match["program"] == "nm":
            text = script.read_text(encoding="utf-8")
            script.write_text(_SHEBANG + prologue + text.removeprefix(_SHEBANG), encoding="utf-8")


def fill_template(template: str, **values: str) -> str:
    """Return a template with values for its names; a value, such as a path, may have another's name in it."""
    return re.sub("|".join(values), lambda match: values[match[0]], template)


def write_executable(path: Path, text: str) -> None:
    """Write a script of sh, without its first line, in which SCRIPT_DIRECTORY stands for the script's own."""
    path.write_text(_SHEBANG + text.replace(SCRIPT_DIRECTORY, '"${0%/*}"'), encoding="utf-8")
    path.chmod(0o755)
