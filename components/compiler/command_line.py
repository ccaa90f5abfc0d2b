"""Rewrites the cc1 command line recorded beside a module's bitcode, so that the bitcode can be compiled again anywhere.

What clang embeds in .llvmcmd is what its driver gave to cc1 for the original source: it names dependency files, side
outputs and, from some versions, the input. A replay must write nothing but the object it is asked for.

A ThinLTO module is compiled from where it stands, with its index and nothing else: its bitcode has had its imports
already (-lto-embed-bitcode=post-merge-pre-opt, lld's --save-temps=import), so that the modules that it imported from,
which the index names by the paths that they had in the build, are not looked for (-thinlto-assume-merged).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from components.console import UserError

# Options of cc1 (clang/Driver/Options.td) that write files beside the object or say where those go, that choose another
# kind of output, that turn a harmless remark about a replay into an error, or that belong to reading source text.
_DROPPED = frozenset({
    "-MP", "-MG", "-MV", "-sys-header-deps", "-module-file-deps", "-emit-obj", "-S", "-emit-llvm", "-emit-llvm-bc",
    "-emit-pch", "-emit-codegen-only", "-Werror", "-pedantic-errors", "-print-stats", "-H", "-ftime-trace",
})  # fmt: skip
_DROPPED_WITH_VALUE = frozenset({
    "-o", "-x", "-MT", "-MQ", "-MF", "-dependency-file", "-dependency-dot", "-header-include-file",
    "-opt-record-file", "-opt-record-passes", "-opt-record-format", "-split-dwarf-file", "-split-dwarf-output",
    "-serialize-diagnostic-file", "-diagnostic-log-file", "-include-pch", "-stack-usage-file",
})  # fmt: skip
_DROPPED_OF_DRIVER = frozenset({"-c", "-MD", "-MMD", "-save-temps"})
_DROPPED_PREFIXES = (
    "-fembed-bitcode", "-coverage-notes-file", "-coverage-data-file", "-stats-file", "-ftime-trace=",
    "-header-include-", "-fthinlto-index=", "-fthin-link-bitcode=", "-flto", "-Werror=", "-fembed-offload-object=",
)  # fmt: skip
_DROPPED_OF_LLVM = "lto-embed-bitcode"
"""It made this bitcode; the replay needs no copy of it in its object."""


def replay_arguments(
    recorded: Sequence[str],
    bitcode: Path,
    output: Path | str | None,
    extra_flags: Sequence[str] = (),
    thinlto_index: Path | None = None,
) -> list[str]:
    """clang's arguments that compile `bitcode` into the object `output` as `recorded` compiled the source.

    Args:
        recorded: the module's arguments: cc1's, "-cc1" first, as extracted; or those of clang's driver, which a corpus
            may have for all its modules in one.
        output: the object's path, "-" for standard output, None to make the code and write nothing.
        extra_flags: put behind the recorded ones, where a later flag wins over an earlier one.
        thinlto_index: the module's ThinLTO index. Its bitcode has had its imports already, and says so to LLVM.

    Raises:
        UserError: the recorded arguments are empty or end inside an option.
    """
    if not any(recorded):
        raise UserError(f"the module {bitcode} has no recorded cc1 arguments", "extract the corpus again")
    kept: list[str] = []
    is_cc1 = recorded[0] == "-cc1"
    dropped = _DROPPED if is_cc1 else _DROPPED | _DROPPED_OF_DRIVER
    arguments = iter(recorded[1:] if is_cc1 else recorded)
    behind_language = False
    for argument in arguments:
        if behind_language and not argument.startswith("-"):
            continue  # the input: the driver puts it behind `-x <language>`
        behind_language = argument == "-x"
        if argument == "-mllvm":
            # Its value belongs to LLVM, whatever it looks like.
            option = _value(arguments, argument, bitcode)
            if not option.lstrip("-").startswith(_DROPPED_OF_LLVM):
                kept += [argument, option]
        elif argument in _DROPPED_WITH_VALUE:
            _value(arguments, argument, bitcode)
        elif argument not in dropped and not argument.startswith(_DROPPED_PREFIXES):
            kept.append(argument)
    if thinlto_index is not None:
        kept += [f"-fthinlto-index={thinlto_index}", "-mllvm", "-thinlto-assume-merged"]
    command = ["-cc1", *kept] if is_cc1 else ["-c", *kept, "-fno-crash-diagnostics"]
    if output is None:
        command += ["-emit-codegen-only"] if is_cc1 else ["-Xclang", "-emit-codegen-only"]
        return [*command, *extra_flags, "-x", "ir", str(bitcode)]
    command += ["-emit-obj"] if is_cc1 else []
    return [*command, *extra_flags, "-x", "ir", str(bitcode), "-o", str(output)]


def _value(arguments: Iterator[str], option: str, bitcode: Path) -> str:
    try:
        return next(arguments)
    except StopIteration:
        raise UserError(
            f"the recorded cc1 arguments of {bitcode} end behind {option}, which needs a value",
            "extract the corpus again",
        ) from None
