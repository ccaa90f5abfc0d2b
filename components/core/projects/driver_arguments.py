"""Arguments of a compiler's driver, by the rules of those of clang and GCC: its inputs, its output, response files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from components.core.projects.response_files import split_response_file
from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, read_bytes

OPTIONS_WITH_VALUE = frozenset(
    """
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
    -iframeworkwithsysroot -imacros -image_base -imultiarch -imultilib -include -include-pch -index-store-path -init
    -install_name -iprefix -iquote -isysroot -isystem -isystem-after -ivfsoverlay -iwithprefix -iwithprefixbefore
    -iwithsysroot -l -mllvm -module-dependency-dir -mthread-model -multiply_defined -o -object_name
    -print-file-name -read_only_relocs -resource-dir -rpath -seg1addr -seg_addr_table -segs_read_only_addr
    -segs_read_write_addr -serialize-diagnostics -specs -stdlib++-isystem -sub_library -sub_umbrella -target -u
    -umbrella -undefined -unexported_symbols_list -vfsoverlay -weak_framework -weak_library -working-directory
    -wrapper -x -z
    """.split()
)
"""Options of clang and GCC that take the next word."""
_OTHER_RESULTS = {
    **dict.fromkeys(("-E", "--preprocess"), "it only preprocesses"),
    **dict.fromkeys(("-M", "-MM", "--dependencies", "--user-dependencies"), "it only writes dependencies"),
    "-fsyntax-only": "it only checks the syntax",
    "--precompile": "it precompiles a module",
    "--analyze": "it only analyzes",
    "-emit-ast": "it writes a syntax tree",
    "-extract-api": "it writes an interface",
    **dict.fromkeys(("-S", "--assemble"), "it writes assembly"),
    "-emit-llvm": "it writes bitcode",
    **dict.fromkeys(("-###", "--version", "-dumpversion", "-dumpmachine"), "it compiles nothing"),
}
"""Options with which a driver writes something else than an object."""
_DEPENDENCIES = ("-MD", "-MMD", "-MP", "-MG", "-MV", "--write-dependencies", "--write-user-dependencies")
_NAMED_OUTPUTS = ("-o", "--output", "-MF", "-MJ", "-MQ", "-MT", "--serialize-diagnostics", "-serialize-diagnostics")
_JOINED_OUTPUTS = tuple(
    """
    -MF -MJ -MQ -MT -Wp,-M -save-temps --save-temps -ftime-trace -fmodule-output -fsave-optimization-record
    -foptimization-record-file= -fproc-stat-report
    """.split()
)
"""Options that name a file or have one written next to the object."""
_NOT_OUTPUTS = ("-objcmt-", "-object")
"""Other options that begin with -o."""
_MODULE_MAP = ".modmap"
"""Suffix of the response files in which CMake says where modules are."""
_MAX_RESPONSE_FILES = 100
_REMEDY = "correct the command"


@dataclass
class DriverArguments:
    """Arguments of a driver that determine its output.

    Attributes:
        words: all arguments, with those of response files in their place.
        output: as the last -o names it, None without one.
        compiles: whether -c is given.
        other: why the result is not an object, "" if it is.
        inputs: input files with their language, "" if their suffix decides.
        missing: response files that do not exist (any more: ninja removes them).
    """

    words: list[str] = field(default_factory=list)
    output: str | None = None
    compiles: bool = False
    other: str = ""
    inputs: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def read_arguments(arguments: Sequence[str], directory: str) -> DriverArguments:
    """Return what the arguments of a driver say that runs in a directory.

    Raises:
        UserError: -o has no value, or a response file cannot be read.
    """
    options = DriverArguments()
    options.words += _expand(arguments, directory, options.missing)
    words = iter(options.words)
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
                raise UserError(f"{word} is its last argument", _REMEDY)
        elif word in ("-x", "--language") or word.startswith(("-x", "--language=")):
            value = next(words, "") if word in ("-x", "--language") else re.sub("^(-x|--language=)", "", word)
            language = "" if value == "none" else value
        elif word in OPTIONS_WITH_VALUE or word.startswith("-Xarch_"):
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
        elif (output := _joined_output(word)) is not None:
            options.output = output
    return options


def _joined_output(word: str) -> str | None:
    """Return FILE of -oFILE and of --output=FILE, None for other arguments."""
    if word.startswith("--output="):
        return word.removeprefix("--output=")
    return word[2:] if word.startswith("-o") and not word.startswith(_NOT_OUTPUTS) else None


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
                problem = f"it has more than {_MAX_RESPONSE_FILES} response files, or {path} includes itself"
                raise UserError(problem, _REMEDY)
            try:
                pending.append(iter(split_response_file(read_bytes(path), path)))
            except MissingFile:  # to a driver, it is then an ordinary argument
                missing.append(word[1:])
                yield word
        else:
            yield word


def without_outputs(arguments: Sequence[str]) -> Iterator[str]:
    """Yield arguments of a compile without -c, and without those that name or add outputs.

    Response files that do not exist stay, but for CMake's maps of modules: a build writes them, and most sources import
    no module.
    """
    words = iter(arguments)
    for word in words:
        if word in _NAMED_OUTPUTS:
            next(words, None)
        elif word in OPTIONS_WITH_VALUE:
            yield from (word, next(words, ""))
        elif word in ("-c", "--compile", *_DEPENDENCIES) or word.startswith(_JOINED_OUTPUTS):
            continue
        elif _joined_output(word) is None and not (word.startswith("@") and word.endswith(_MODULE_MAP)):
            yield word
