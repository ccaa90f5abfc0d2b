"""Rewrites the recorded cc1 command line of a module, so that its bitcode can be compiled again on any machine.

.llvmcmd has the arguments that clang's driver passed to cc1 for the original source: they name dependency files, side
outputs and, in some versions, the input. A replay must write nothing but the requested object, and must not obey an
untrusted command line: see replay_options.py.

A ThinLTO module is compiled with its index and no other module: functions have been imported into its bitcode already
(-lto-embed-bitcode=post-merge-pre-opt, lld's --save-temps=import), so the modules that it imported from, which the
index names by their paths in the build, are not looked up (-thinlto-assume-merged).
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from components.core.compiler.replay.parse_check import misparsed_options
from components.core.compiler.replay.replay_options import MissingValue, Selection, is_response_file, select_options
from components.core.formats.corpus import Module
from components.core.formats.links import Lto
from components.core.formats.profiles import profile_resolver
from components.platform.errors import UserError

_MAX_LISTED_MODULES = 3


def replay_arguments(
    recorded: Sequence[str],
    bitcode: Path,
    output: Path | str | None,
    extra_flags: Sequence[str] = (),
    thinlto_index: Path | None = None,
    allowed_options: Collection[str] = (),
    corpus: Path | None = None,
    lto: Lto | None = None,
    clang: Path | None = None,
) -> list[str]:
    """Return clang's arguments that compile `bitcode` to the object `output` as `recorded` compiled the source.

    Args:
        recorded: the module's arguments: those of cc1, "-cc1" first, as extracted; or those of clang's driver, which a
            corpus may specify once for all its modules.
        bitcode: path of the module's bitcode.
        output: path of the object, "-" for standard output, None to generate code without writing it.
        extra_flags: flags appended to the recorded ones; a later flag overrides an earlier one.
        thinlto_index: the module's ThinLTO index. A flag tells LLVM that the bitcode already has its imports.
        allowed_options: names of recorded options that are replayed although they are not on the allow list.
        corpus: directory of the module's corpus; profiles in it may be read.
        lto: link-time optimization whose bitcode `output` shall be, as by -flto=`lto`; None for native code.
        clang: the compiler that the arguments are for, which is asked how it parses them; None if none will run.

    Raises:
        UserError: the recorded arguments are empty, end inside an option, or include a refused option, or one that the
            compiler parses otherwise.
    """
    selection = _select_recorded(recorded, str(bitcode), allowed_options, bitcode, corpus)
    if selection.refused:
        raise _refused_options_error({name: [str(bitcode)] for name in selection.refused})
    arguments = selection.arguments
    is_cc1 = recorded[0] == "-cc1"
    if clang is not None and (wrong := misparsed_options(clang, arguments, is_cc1) - {*allowed_options}):
        raise _refused_options_error({name: [str(bitcode)] for name in sorted(wrong)})
    if thinlto_index is not None:
        arguments += [f"-fthinlto-index={thinlto_index}", "-mllvm", "-thinlto-assume-merged"]
    # A configuration file, which the driver looks for by the target's name, may load a plugin.
    command = ["-cc1", *arguments] if is_cc1 else ["-c", *arguments, "-fno-crash-diagnostics", "--no-default-config"]
    if output is None:
        command += ["-emit-codegen-only"] if is_cc1 else ["-Xclang", "-emit-codegen-only"]
        return [*command, *extra_flags, "-x", "ir", str(bitcode)]
    if lto is not None:
        command += ["-emit-llvm-bc", f"-flto={lto}", "-flto-unit"] if is_cc1 else [f"-flto={lto}"]
    elif is_cc1:
        command += ["-emit-obj"]
    return [*command, *extra_flags, "-x", "ir", str(bitcode), "-o", str(output)]


def require_replayable(modules: Iterable[Module], allowed_options: Collection[str] = ()) -> None:
    """Check the recorded options of all modules before the first compile.

    Raises:
        UserError: some options are refused; the message lists them all, so that one fix is enough.
    """
    refused: dict[str, list[str]] = {}
    for module in modules:
        selection = _select_recorded(module.arguments(), module.name, allowed_options, module.bitcode, module.directory)
        for name in dict.fromkeys(selection.refused):
            refused.setdefault(name, []).append(module.name)
    if refused:
        raise _refused_options_error(refused)


def _select_recorded(
    recorded: Sequence[str], module: str, allowed_options: Collection[str], bitcode: Path, corpus: Path | None
) -> Selection:
    if not any(recorded):
        raise UserError(f"module {module} has no recorded cc1 arguments", "extract the corpus again")
    is_cc1 = recorded[0] == "-cc1"
    try:
        return select_options(
            recorded[1:] if is_cc1 else recorded, is_cc1, allowed_options, profile_resolver(bitcode, corpus)
        )
    except MissingValue as error:
        raise UserError(
            f"the recorded cc1 arguments of {module} end after {error}, which requires a value",
            "extract the corpus again",
        ) from None


def _refused_options_error(refused: Mapping[str, Sequence[str]]) -> UserError:
    """Return the error that lists refused options, `refused`: option -> names of the modules that have it."""
    lines = []
    for name, modules in refused.items():
        more = f" and {len(modules) - _MAX_LISTED_MODULES} more" if len(modules) > _MAX_LISTED_MODULES else ""
        lines.append(f"  {name}: {', '.join(modules[:_MAX_LISTED_MODULES])}{more}")
    return UserError(
        "some modules were compiled with options that are refused on replay, because they are unknown, could run code "
        "or could access other files:\n" + "\n".join(lines),
        _remedy(list(refused)),
    )


def _remedy(refused: Sequence[str]) -> str:
    """Return what a user can do about refused options: not each can be allowed, and mlgo run allows none."""
    remove = shlex.join(word for name in refused for word in ("--cmd-remove", name))
    text = f"compile the modules without them: mlgo corpus import --input CORPUS --output NEW {remove}"
    if any(is_response_file(name) for name in refused):
        text += " --cmd-add 'ARGUMENTS OF THE FILE'"
    allowed = [name for name in refused if name.startswith("-") and not is_response_file(name)]
    if allowed and len(allowed) == len(refused):
        options = shlex.join(f"--allow-cc1-option={name}" for name in allowed)
        text += f"; or, if you trust who made the corpus, pass {options} to mlgo trace, ppo and evaluation"
    return text
