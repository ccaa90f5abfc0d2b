"""The object that a compiler's command writes, by the rules of the drivers of clang and GCC.

Build systems run compilers through others (env, time, ccache, libtool, sh -c), and record that, too.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from components.core.projects.response_files import split_response_file
from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, read_bytes

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
_VALUES_TEXT = """
--assert --config --define-macro --dyld-prefix --entry --for-assembler --for-linker --force-link --imacros
--include --include-directory --include-directory-after --include-prefix --include-with-prefix
--include-with-prefix-after --include-with-prefix-before --language --library-directory --output --param
--prefix --rtlib --serialize-diagnostics --std --sysroot --undefine-macro -A -B -D -F -G -I -L -MF -MJ -MQ -MT
-T -Tbss -Tdata -Ttext -U -Xanalyzer -Xarch_device -Xarch_host -Xassembler -Xclang -Xcuda-fatbinary
-Xcuda-ptxas -Xflang -Xlinker -Xoffload-linker -Xopenmp-target -Xpreprocessor -allowable_client -arch
-arch_only -aux-info -b -bundle_loader -ccc-gcc-name -ccc-install-dir -client_name -compatibility_version
-current_version -cxx-isystem -dependency-dot -dependency-file -dumpbase -dumpbase-ext -dumpdir -dylib_file
-dylinker_install_name -e -exported_symbols_list -filelist -filetype -fmodules-user-build-path -force_load
-fplugin-arg -framework -ftrapv-handler -gcc-toolchain -iapinotes-modules -idirafter -iframework
-iframeworkwithsysroot -imacros -image_base -imultiarch -imultilib -include -index-store-path -init
-install_name -iprefix -iquote -isysroot -isystem -isystem-after -ivfsoverlay -iwithprefix -iwithprefixbefore
-iwithsysroot -l -mllvm -module-dependency-dir -mthread-model -multiply_defined -o -object_name
-print-file-name -read_only_relocs -resource-dir -rpath -seg1addr -seg_addr_table -segs_read_only_addr
-segs_read_write_addr -serialize-diagnostics -specs -stdlib++-isystem -sub_library -sub_umbrella -target -u
-umbrella -undefined -unexported_symbols_list -vfsoverlay -weak_framework -weak_library -working-directory
-wrapper -x -z
"""
_VALUES = frozenset(_VALUES_TEXT.split())
"""Options of clang and GCC that take the next word."""
_OTHER_RESULTS = {
    "-E": "it only preprocesses",
    "--preprocess": "it only preprocesses",
    "-M": "it only writes dependencies",
    "-MM": "it only writes dependencies",
    "--dependencies": "it only writes dependencies",
    "--user-dependencies": "it only writes dependencies",
    "-fsyntax-only": "it only checks the syntax",
    "--precompile": "it precompiles a module",
    "--analyze": "it only analyzes",
    "-emit-ast": "it writes a syntax tree",
    "-extract-api": "it writes an interface",
    "-S": "it writes assembly",
    "--assemble": "it writes assembly",
    "-emit-llvm": "it writes bitcode",
    "-###": "it compiles nothing",
    "--version": "it compiles nothing",
    "-dumpversion": "it compiles nothing",
    "-dumpmachine": "it compiles nothing",
}
"""Options with which a driver writes something else than an object."""
_DEPENDENCIES = ("-MD", "-MMD", "-MP", "-MG", "-MV", "--write-dependencies", "--write-user-dependencies")
_NAMED_OUTPUTS = ("-o", "--output", "-MF", "-MJ", "-MQ", "-MT", "--serialize-diagnostics", "-serialize-diagnostics")
_JOINED_OUTPUTS = ("--output=", "-MF", "-MJ", "-MQ", "-MT", "-Wp,-M", "-save-temps", "--save-temps", "-ftime-trace")
"""Options that name a file or have one written next to the object."""
_COLORS = re.compile(r"\x1b\[[0-9;]*[mK]")
_UNKNOWN = re.compile(
    r"error: (?:(?:unknown argument:? '|unsupported option ')(?P<option>-[^']+)'"
    r"|unsupported argument '(?P<value>[^']*)' to option '(?P<name>-[^']+=)'"
    r"|invalid value '[^']*' in '(?P<pair>-[^']+)')"
)
"""What clang says of an option, or of an option's value, that only gcc has."""
_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".H", ".hp", ".h++", ".tcc")
_OBJECTS = (".o", ".obj", ".lo")
_LINKED = (*_OBJECTS, ".a", ".la", ".so", ".lib")
_MAX_RESPONSE_FILES = 100
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
    """Return the options of which clang's output says that it does not have them, each once."""
    found = _UNKNOWN.finditer(_COLORS.sub("", text))
    return list(dict.fromkeys(match["option"] or match["pair"] or match["name"] + match["value"] for match in found))


@dataclass(frozen=True)
class CompileCommand:
    """A command that compiles a source file, without the files that it writes.

    Attributes:
        directory: absolute path of the directory that it runs in.
        program: the compiler, as the command spells it.
        arguments: its arguments with the source, without -c and without options that name or add outputs.
        output: the object, as the command spells it.
    """

    directory: str
    program: str
    arguments: tuple[str, ...]
    output: str


@dataclass
class _Arguments:
    """Arguments of a driver that determine its output.

    Attributes:
        output: argument of the last -o.
        compiles: whether -c is given.
        other: why the result is not an object, "" if it is.
        inputs: input files with their language, "" if their suffix decides.
        missing: response files that do not exist (any more: ninja removes them).
    """

    output: str | None = None
    compiles: bool = False
    other: str = ""
    inputs: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


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
    return CompileCommand(directory, program, tuple(_without_outputs(arguments)), output)


def _without_outputs(arguments: Sequence[str]) -> Iterator[str]:
    words = iter(arguments)
    for word in words:
        if word in _NAMED_OUTPUTS:
            next(words, None)
        elif word in _VALUES:
            yield from (word, next(words, ""))
        elif word in ("-c", "--compile", *_DEPENDENCIES) or word.startswith(_JOINED_OUTPUTS):
            continue
        elif not word.startswith("-o") or word.startswith(("-objcmt-", "-object")):
            yield word


def _compile_in(command: str, directory: str, source: str, named: str) -> tuple[str, list[str], str]:
    """Return the directory, the words and the object of the first simple command that makes an object."""
    reason: NoObjectError = NotACompileError("its command is empty")
    working_directory = directory
    for simple in _simple_commands(_shell_words(command)):
        if simple[0] == "cd" and len(simple) == 2:
            working_directory = os.path.join(working_directory, simple[1])
            continue
        try:
            return working_directory, simple, output_of_words(simple, working_directory, source, named)
        except NoObjectError as error:
            reason = error if isinstance(reason, NotACompileError) else reason
    raise reason


def compiler_calls(command: str, directory: str) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield the calls of compilers in a shell's command: the directory that each runs in, the compiler, its arguments.

    Raises:
        NoObjectError: the command cannot be read.
    """
    for simple in _simple_commands(_shell_words(command)):
        if simple[0] == "cd" and len(simple) == 2:
            directory = os.path.join(directory, simple[1])
            continue
        program, arguments = compiler_of(simple)
        if _COMPILER.fullmatch(os.path.basename(program)):
            yield directory, program, arguments


def output_of_words(words: Sequence[str], directory: str, source: str, named: str = "") -> str:
    """Return the object that a command writes, as the command spells it.

    Args:
        words: program and arguments.
        directory: directory that it runs in.
        source: the source file of interest, if it compiles several; "" if unknown.
        named: the output that a database names; the command's -o has priority.

    Raises:
        NoObjectError: it writes none.
    """
    program, arguments = compiler_of(words)
    name = os.path.basename(program)
    if name in _SHELLS and not arguments:
        raise NotACompileError(f"it runs no compiler of C or C++ but {name}")
    if name in _SHELLS:
        return output_of_shell(arguments[0], directory, source, named)
    options = _parse(arguments, directory)
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
            values = _LAUNCHER_VALUES.get(name, _VALUES)
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


def _parse(arguments: Sequence[str], directory: str) -> _Arguments:
    options = _Arguments()
    words = _expand(arguments, directory, options.missing)
    first = True
    language = ""
    for word in words:
        cc1, first = first and word == "-cc1", False
        if cc1:
            rest = list(words)
            options.compiles = "-emit-obj" in rest
            options.other = "" if options.compiles else "its cc1 command does not emit an object"
            outputs = [value for option, value in itertools.pairwise(rest) if option == "-o"]
            options.output = outputs[-1] if outputs else None
            return options
        if word[:2] in ("-D", "-I", "-W") and len(word) > 2:
            continue  # most words
        if word in ("-o", "--output"):
            options.output = next(words, None)
            if options.output is None:
                raise NoObjectError(f"{word} is its last argument")
        elif word.startswith("--output="):
            options.output = word.removeprefix("--output=")
        elif word in ("-x", "--language") or word.startswith(("-x", "--language=")):
            value = next(words, "") if word in ("-x", "--language") else re.sub("^(-x|--language=)", "", word)
            language = "" if value == "none" else value
        elif word in _VALUES or word.startswith("-Xarch_"):
            next(words, None)
        elif word == "--":
            options.inputs += [(name, language) for name in words]
        elif not word.startswith("-") or word == "-":
            if word and not (word.startswith("@") and options.missing):
                options.inputs.append((word, language))
        elif word in ("-c", "--compile"):
            options.compiles = True
        elif word in _OTHER_RESULTS:
            options.other = options.other or _OTHER_RESULTS[word]
        elif word.startswith("-o") and not word.startswith(("-objcmt-", "-object")):
            options.output = word[2:]
    return options


def _expand(arguments: Sequence[str], directory: str, missing: list[str]) -> Iterator[str]:
    """Yield the arguments with those of response files (@FILE) in their place. Append absent files to `missing`."""
    pending = [iter(arguments)]
    files = 0
    while pending:
        word = next(pending[-1], None)
        if word is None:
            pending.pop()
        elif word.startswith("@") and len(word) > 1:
            path = Path(directory, word[1:])
            files += 1
            if files > _MAX_RESPONSE_FILES:
                raise NoObjectError(f"it has more than {_MAX_RESPONSE_FILES} response files, or {path} includes itself")
            try:
                pending.append(iter(split_response_file(read_bytes(path), path)))
            except MissingFile:  # to a driver, it is then an ordinary argument
                missing.append(word[1:])
                yield word
            except UserError as error:
                raise NoObjectError(error.problem) from None
        else:
            yield word


def _imply_output(options: _Arguments, directory: str, source: str) -> str:
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


def _simple_commands(words: Sequence[tuple[str, bool]]) -> Iterator[list[str]]:
    """Yield the simple commands of a shell's command, without redirections."""
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
