"""Rewrites the cc1 command line recorded beside a module's bitcode, so that the bitcode can be compiled again anywhere.

What clang embeds in .llvmcmd is what its driver gave to cc1 for the original source: it names dependency files, side
outputs and, from some versions, the input. A replay must write nothing but the object it is asked for, and must not do
what a stranger's command line asks for: see replay_options.py.

A ThinLTO module is compiled from where it stands, with its index and nothing else: its bitcode has had its imports
already (-lto-embed-bitcode=post-merge-pre-opt, lld's --save-temps=import), so that the modules that it imported from,
which the index names by the paths that they had in the build, are not looked for (-thinlto-assume-merged).
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from components.compiler.profiles import resolver
from components.compiler.replay_options import MissingValue, Selection, select_options
from components.console import UserError
from components.formats.corpus import Module

_SHOWN = 3


def replay_arguments(
    recorded: Sequence[str],
    bitcode: Path,
    output: Path | str | None,
    extra_flags: Sequence[str] = (),
    thinlto_index: Path | None = None,
    allowed_options: Collection[str] = (),
    corpus: Path | None = None,
) -> list[str]:
    """clang's arguments that compile `bitcode` into the object `output` as `recorded` compiled the source.

    Args:
        recorded: the module's arguments: cc1's, "-cc1" first, as extracted; or those of clang's driver, which a corpus
            may have for all its modules in one.
        output: the object's path, "-" for standard output, None to make the code and write nothing.
        extra_flags: put behind the recorded ones, where a later flag wins over an earlier one.
        thinlto_index: the module's ThinLTO index. Its bitcode has had its imports already, and says so to LLVM.
        allowed_options: names of recorded options that are taken over though they are not on the list of those.
        corpus: the directory of the module's corpus; profiles in it may be read.

    Raises:
        UserError: the recorded arguments are empty, end inside an option, or have one that is refused.
    """
    selection = _select(recorded, str(bitcode), allowed_options, bitcode, corpus)
    if selection.refused:
        raise _refusal({name: [str(bitcode)] for name in selection.refused})
    kept = selection.kept
    is_cc1 = recorded[0] == "-cc1"
    if thinlto_index is not None:
        kept += [f"-fthinlto-index={thinlto_index}", "-mllvm", "-thinlto-assume-merged"]
    command = ["-cc1", *kept] if is_cc1 else ["-c", *kept, "-fno-crash-diagnostics"]
    if output is None:
        command += ["-emit-codegen-only"] if is_cc1 else ["-Xclang", "-emit-codegen-only"]
        return [*command, *extra_flags, "-x", "ir", str(bitcode)]
    command += ["-emit-obj"] if is_cc1 else []
    return [*command, *extra_flags, "-x", "ir", str(bitcode), "-o", str(output)]


def require_replayable(modules: Iterable[Module], allowed_options: Collection[str] = ()) -> None:
    """Check the recorded options of all modules before the first is compiled.

    Raises:
        UserError: some are refused; it names them all, so that one answer is enough.
    """
    refused: dict[str, list[str]] = {}
    for module in modules:
        found = _select(module.arguments(), module.name, allowed_options, module.bitcode, module.directory)
        for name in dict.fromkeys(found.refused):
            refused.setdefault(name, []).append(module.name)
    if refused:
        raise _refusal(refused)


def _select(
    recorded: Sequence[str], module: str, allowed_options: Collection[str], bitcode: Path, corpus: Path | None
) -> Selection:
    if not any(recorded):
        raise UserError(f"the module {module} has no recorded cc1 arguments", "extract the corpus again")
    is_cc1 = recorded[0] == "-cc1"
    try:
        return select_options(recorded[1:] if is_cc1 else recorded, is_cc1, allowed_options, resolver(bitcode, corpus))
    except MissingValue as error:
        raise UserError(
            f"the recorded cc1 arguments of {module} end behind {error}, which needs a value",
            "extract the corpus again",
        ) from None


def _refusal(refused: Mapping[str, Sequence[str]]) -> UserError:
    """refused: option -> modules."""
    lines = []
    for name, modules in refused.items():
        more = f" and {len(modules) - _SHOWN} more" if len(modules) > _SHOWN else ""
        lines.append(f"  {name}: {', '.join(modules[:_SHOWN])}{more}")
    options = [name for name in refused if name.startswith("-")]
    allow = " ".join(f"--allow-cc1-option={shlex.quote(name)}" for name in options)
    return UserError(
        "modules were compiled with options that a replay does not take over, because these are unknown, or could run "
        "code or use other files:\n" + "\n".join(lines),
        "take these modules out of the corpus" + (f"; or, if you trust who made it, pass {allow}" if allow else ""),
    )
