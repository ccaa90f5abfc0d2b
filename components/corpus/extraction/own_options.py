"""Removes the options of this project's compilers from recorded arguments, so that what is deployed can be collected.

A program that is built with a release clang, a plan or the plugin records these options with each module. The bitcode
is embedded before they take effect; a replay chooses its own advisor.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from components.core import problems
from components.core.formats.corpus import DESCRIPTION
from components.core.formats.toolchain import PLUGIN
from components.corpus.extraction.file_io import read, write

_OWN_PREFIX = "mlgo-"
_PLUGIN_OPTIONS = ("-fpass-plugin=", "-fplugin=", "-load=")


def _name(option: str) -> str:
    return option.partition("=")[0].lstrip("-")


_LLVM_NAMES = frozenset(
    _name(option)
    for llvm in (problems.get(name).llvm for name in problems.names())
    for option in (
        *llvm.development_options,
        *llvm.release_options,
        *(llvm.log_option, llvm.policy_option, llvm.channel_option),
    )
)
"""LLVM's options that select an advisor or belong to one."""


def strip_own_options(arguments: Sequence[str]) -> list[str]:
    """Return a module's arguments, cc1's or the driver's, without this project's options and their values."""
    stripped: list[str] = []
    at = 0
    while at < len(arguments):
        length = _own_length(arguments[at : at + 4])
        stripped += [] if length else arguments[at : at + 1]
        # An option of others with a separate value keeps it, whatever the value looks like.
        if not length and arguments[at] == "-mllvm":
            stripped += arguments[at + 1 : at + 2]
            length = 2
        at += length or 1
    return stripped


def _own_length(arguments: Sequence[str]) -> int:
    """Return how many of the first arguments are one option of ours with its value, 0 if the first one is none."""
    first, *rest = arguments
    if first == "-mllvm" and rest:
        name = _name(rest[0])
        own = name in _LLVM_NAMES or name.startswith(_OWN_PREFIX)
        if not own or not rest[0].startswith("-"):
            return 0
        # -mllvm -enable-ml-inliner -mllvm release
        separate = "=" not in rest[0] and len(rest) > 2 and rest[1] == "-mllvm" and not rest[2].startswith("-")
        return 4 if separate else 2
    if first == "-load" and rest:
        return 2 if PurePath(rest[0]).name == PLUGIN else 0
    return 1 if first.startswith(_PLUGIN_OPTIONS) and PurePath(first.partition("=")[2]).name == PLUGIN else 0


def strip_imported(corpus: Path, names: Iterable[str]) -> None:
    """Remove this project's options from the .cmd files of modules in `corpus`, or from its global arguments."""
    path = corpus / DESCRIPTION
    description = json.loads(path.read_text(encoding="utf-8"))
    override = description.get("global_command_override")
    if override is not None:
        if (stripped := strip_own_options(override)) != override:
            description["global_command_override"] = stripped
            path.write_text(json.dumps(description, indent=2), encoding="utf-8")
        return
    for name in names:
        cmd = str(corpus / f"{name}.cmd")
        arguments = read(cmd).decode("utf-8", "surrogateescape").split("\0")
        if (stripped := strip_own_options(arguments)) != arguments:
            write(cmd, "\0".join(stripped).encode("utf-8", "surrogateescape"))
