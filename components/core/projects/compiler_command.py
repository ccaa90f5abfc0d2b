"""The object that a compiler's command writes, by the rules of the drivers of clang and GCC.

Build systems run compilers through others (env, time, ccache, libtool, sh -c), and record that, too.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from components.core.projects.driver_arguments import (
    OPTIONS_WITH_VALUE,
    DriverArguments,
    read_arguments,
    without_outputs,
)
from components.platform.errors import UserError
from components.platform.storage.input_files import read_bytes

_COMPILER = re.compile(
    r"(?:.*-)?(?:clang|clang\+\+|gcc|g\+\+|cc|c\+\+|c[89]9|icx|icpx|armclang|hipcc|emcc|em\+\+|tcc)(?:-[\d.]+)?(?:\.exe)?"
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
_LAUNCHER_VALUES = {
    "env": ("-u", "--unset", "-C", "--chdir"),
    "time": ("-o", "--output", "-f", "--format"),
    "gtime": ("-o", "--output", "-f", "--format"),
    "nice": ("-n", "--adjustment"),
    "ionice": ("-c", "--class", "-n", "--classdata"),
    "timeout": ("-k", "--kill-after", "-s", "--signal"),
    "stdbuf": ("-i", "--input", "-o", "--output", "-e", "--error"),
    "strace": ("-o", "-e", "-s", "-u", "-E"),
    "libtool": ("--tag", "--mode"),
}
"""Options of programs that run a compiler, which take the next word."""
_COLORS = re.compile(r"\x1b\[[0-9;]*[mK]")
_UNKNOWN = re.compile(
    r"lld: error: unknown argument '(?P<linker>-[^']+)'"
    r"|error: (?:(?:unknown argument:? '|unsupported option ')(?P<option>-[^']+)'"
    r"|unsupported argument '(?P<value>[^']*)' to option '(?P<name>-[^']+[=,])'"
    r"|invalid value '[^']*' in '(?P<pair>-[^']+)')"
)
"""What clang and lld say of an option, or of an option's value, that only gcc, GNU as or GNU ld has."""
_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".H", ".hp", ".h++", ".tcc")
_OBJECTS = (".o", ".obj", ".lo")
_LINKED = (*_OBJECTS, ".a", ".la", ".so", ".lib")
_LIBTOOL_OBJECT = re.compile(r"^(pic|non_pic)_object='(.+)'$", re.MULTILINE)
_WORD = re.compile(r"""(?:[^\s"'\\]+|"(?:[^"\\]|\\.)*"|'[^']*'|\\.)+""", re.DOTALL)
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)""", re.DOTALL)
_QUOTING = frozenset("\"'\\")
_SEPARATORS = ("&&", "||", ";", "|", "&")
_SEPARATOR = re.compile(r"(&&|\|\|?|;)")
_REDIRECTION = re.compile(r"\d?(?:>>?|<)(&?\S*)|&>>?(\S*)")


class NoObjectError(Exception):
    """The command makes no object that stays; the message says why."""


class NotACompileError(NoObjectError):
    """The command compiles no source: it links, archives, generates files ... A database may list all commands."""


def lacking_options(text: str) -> list[str]:
    """Return the options of which clang's output says that it does not have them, each once, those of the linker and
    the assembler as -Wl,OPTION and -Wa,OPTION."""
    options = [
        f"-Wl,{match['linker']}"
        if match["linker"]
        else match["option"] or match["pair"] or match["name"] + match["value"]
        for match in _UNKNOWN.finditer(_COLORS.sub("", text))
    ]
    return list(dict.fromkeys(options))


@dataclass(frozen=True)
class CompileCommand:
    """A command that compiles a source file, without the files that it writes.

    Attributes:
        directory: absolute path of the directory that it runs in.
        program: the compiler, as the command spells it.
        arguments: its arguments with the source, those of response files in their places, without -c and without
            options that name or add outputs.
        output: the object, as the command spells it.
    """

    directory: str
    program: str
    arguments: tuple[str, ...]
    output: str

    @property
    def object(self) -> str:
        """Absolute path of the object."""
        return os.path.normpath(os.path.join(self.directory, self.output))


def output_of_shell(command: str, directory: str, source: str, named: str = "") -> str:
    """Return the object that a shell's command writes: "b/a.o" for "cd b && cc -c a.c". NoObjectError if none."""
    working_directory, _simple, output = _compile_in(command, directory, source, named)
    moved = os.path.relpath(working_directory, directory or None)
    return output if moved == os.curdir else os.path.normpath(os.path.join(moved, output))


def compile_of_shell(command: str, directory: str, source: str, named: str = "") -> CompileCommand:
    """Return the compile in a shell's command, "cc -c a.c" of "cd b && cc -c a.c". NoObjectError if there is none."""
    working_directory, simple, _output = _compile_in(command, directory, source, named)
    return compile_of_words(simple, working_directory, source, named)


def compile_of_words(words: Sequence[str], directory: str, source: str, named: str = "") -> CompileCommand:
    """Return the compile that a command is; for the arguments see `output_of_words`. NoObjectError if it is none."""
    output = output_of_words(words, directory, source, named)
    program, arguments = compiler_of(words)
    if os.path.basename(program) in _SHELLS:
        return compile_of_shell(arguments[0], directory, source, named)
    words = read_arguments(arguments, directory).words
    return CompileCommand(directory, program, tuple(without_outputs(words)), output)


def _compile_in(command: str, directory: str, source: str, named: str) -> tuple[str, list[str], str]:
    """Return the directory, the words and the object of the first simple command that makes an object."""
    reason: NoObjectError = NotACompileError("its command is empty")
    working_directory = directory
    for simple in simple_commands(command):
        if simple[0] == "cd" and len(simple) == 2:
            working_directory = os.path.join(working_directory, simple[1])
            continue
        try:
            return working_directory, simple, output_of_words(simple, working_directory, source, named)
        except NoObjectError as error:
            reason = error if isinstance(reason, NotACompileError) else reason
    raise reason


def compiler_calls(
    command: str, directory: str, others: re.Pattern[str] | None = None
) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield the calls of compilers in a shell's command: the directory that each runs in, the compiler, its arguments.

    Args:
        others: names of further programs whose calls are wanted.

    Raises:
        NoObjectError: the command cannot be read.
    """
    for simple in simple_commands(command):
        if simple[0] == "cd" and len(simple) == 2:
            directory = os.path.join(directory, simple[1])
            continue
        program, arguments = compiler_of(simple)
        name = os.path.basename(program)
        if _COMPILER.fullmatch(name) or (others and others.fullmatch(name)):
            yield directory, program, arguments


def output_of_words(words: Sequence[str], directory: str, source: str, named: str = "") -> str:
    """Return the object that a command writes, as the command spells it. NoObjectError if it writes none.

    Args:
        source: the source file of interest, if it compiles several; "" if unknown.
        named: the output that a database names; the command's -o has priority.
    """
    program, arguments = compiler_of(words)
    name = os.path.basename(program)
    if name in _SHELLS and not arguments:
        raise NotACompileError(f"it runs no compiler of C or C++ but {name}")
    if name in _SHELLS:
        return output_of_shell(arguments[0], directory, source, named)
    try:
        options = read_arguments(arguments, directory)
    except UserError as error:
        raise NoObjectError(error.problem) from None
    output = options.output if options.output is not None else named or None
    is_object = output is not None and output.endswith(_OBJECTS)
    if not _COMPILER.fullmatch(name) and not options.compiles and not is_object:
        raise NotACompileError(f"it runs no compiler of C or C++ but {name[:80]}")
    if options.other:
        raise NoObjectError(options.other)
    if options.inputs and all(map(_is_header, options.inputs)):
        raise NoObjectError("it precompiles a header")
    if not options.compiles and not is_object:
        if options.missing:
            raise NoObjectError(f"its response file {options.missing[0]} does not exist")
        if all(name.endswith(_LINKED) for name, _language in options.inputs):
            raise NotACompileError("it only links")
        raise NoObjectError("it links, too, and keeps no object: compile with -c")
    if output is None:
        output = _imply_output(options, directory, source)
    if output in ("/dev/null", "-", ""):
        raise NoObjectError(f"its output is {output or 'empty'}")
    return _resolve_libtool(directory, output) if output.endswith(".lo") else output


def installed_compilers(names: Sequence[str], path: str | None = None) -> Iterator[Path]:
    """Yield the user's own compilers that are installed: the one of CC, then those of `names`.

    Args:
        path: directories as in PATH, in place of it.
    """
    own: Sequence[str] = ()
    with suppress(ValueError, NotACompileError):
        own = [compiler_of(shlex.split(os.environ.get("CC", "")))[0]]
    for name in (*own, *names):
        if found := shutil.which(name, path=path):
            yield Path(found)


def compiler_of(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the compiler of a command without the programs that run it, and its arguments.

    For a shell, the only argument is its command. If no word is a compiler's name, the first program is returned.
    """
    first: tuple[str, Sequence[str]] | None = None
    values: Sequence[str] | frozenset[str] = ()
    index = 0
    while index < len(words):
        word = words[index]
        name = os.path.basename(word)
        index += 1
        if word.startswith("-"):
            index += word in values
        elif _ASSIGNMENT.match(word):
            continue
        elif _COMPILER.fullmatch(name):
            return word, words[index:]
        elif name in _SHELLS and (script := _script_of(words[index:])) is not None:
            return word, [script]
        elif first is None or name in _LAUNCHER_VALUES:
            first = first or (word, words[index:])
            values = _LAUNCHER_VALUES.get(name, OPTIONS_WITH_VALUE)
    if first is None:
        raise NotACompileError("its command is empty")
    return first


def _script_of(arguments: Sequence[str]) -> str | None:
    """Return the command that a shell executes (sh -ec 'COMMAND'), None if it runs a script."""
    for index, argument in enumerate(arguments):
        if not argument.startswith("-"):
            return None
        if not argument.startswith("--") and "c" in argument:
            return arguments[index + 1] if index + 1 < len(arguments) else None
    return None


def _imply_output(options: DriverArguments, directory: str, source: str) -> str:
    """Return the object of a compile without -o: the source's name with the suffix .o, in the working directory."""
    if options.missing:
        raise NoObjectError(f"its response file {options.missing[0]} does not exist")

    def resolve(name: str) -> str:
        return os.path.normpath(os.path.join(directory, name))

    inputs = [item for item in options.inputs if source and resolve(item[0]) == resolve(source)] or options.inputs
    if not inputs:
        raise NoObjectError("it names no source file")
    if len(inputs) > 1 and inputs is options.inputs:
        raise NoObjectError(f"it compiles {len(inputs)} files, none of which is the entry's file {source}".rstrip())
    # The same file can be named twice, once as a header and once, after -x c, as a source.
    compiled = [item for item in inputs if not _is_header(item)]
    if not compiled:
        raise NoObjectError("it precompiles a header")
    base = os.path.basename(compiled[0][0])
    return f"{base[: base.rfind('.')] if '.' in base else base}.o"


def _is_header(item: tuple[str, str]) -> bool:
    name, language = item
    return language.endswith("-header") or (not language and name.endswith(_HEADERS))


def _resolve_libtool(directory: str, output: str) -> str:
    """Return the object that a libtool object (a text file) names: the position-independent one if there is one."""
    try:
        text = read_bytes(Path(directory, output)).decode("utf-8", "replace")
    except UserError:
        return output
    objects = {kind: name for kind, name in _LIBTOOL_OBJECT.findall(text) if name != "none"}
    name = objects.get("pic") or objects.get("non_pic")
    return output if name is None else os.path.join(os.path.dirname(output), name)


def _shell_words(command: str) -> list[tuple[str, bool]]:
    """Split a command as a shell does; return words, and whether each is without quotes, so that it may be an operator.

    As fast as it can be: a large project has gigabytes of commands.
    """
    if not any(character in command for character in "\"'\\"):
        return [(word, True) for word in command.split()]
    if _WORD.sub("", command).strip():
        raise NoObjectError("its command has a quote that is not closed")
    words = []
    for word in _WORD.findall(command):
        bare = _QUOTING.isdisjoint(word)
        words.append((word if bare else _QUOTED.sub(_unquote, word), bare))
    return words


def _unquote(match: re.Match[str]) -> str:
    single, double, escaped = match.groups()
    if single is not None:
        return str(single)
    if double is not None:
        return re.sub(r'\\(["\\$`\n])', lambda pair: pair[1].replace("\n", ""), double)
    return "" if escaped == "\n" else str(escaped)


def simple_commands(command: str) -> Iterator[list[str]]:
    """Yield the words of the simple commands of a shell's command, without redirections.

    Raises:
        NoObjectError: the command cannot be read.
    """
    words = _shell_words(command)
    simple: list[str] = []
    redirected = subshell = False
    for written, bare in [*words, (";", True)]:
        if not bare:
            simple += [] if redirected else [written]
            redirected = False
            continue
        for word in _SEPARATOR.split(written) if "&" in written or "|" in written or ";" in written else (written,):
            if word in _SEPARATORS:
                if simple:
                    yield simple
                simple, redirected = [], False
                continue
            if not simple and word.startswith("("):
                word, subshell = word.lstrip("("), True
            if subshell and word.endswith(")") and "(" not in word:
                word = word.rstrip(")")
            redirection = _REDIRECTION.fullmatch(word)
            if word and not redirected and not redirection and (simple or word not in (")", "{", "}", "!", ":")):
                simple.append(word)
            redirected = redirection is not None and not (redirection[1] or redirection[2])
