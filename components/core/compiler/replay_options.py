"""Selects the recorded options of a module that a replay keeps.

A corpus may come from an untrusted source, and compiler options can load plugins, read profiles and write side
outputs. Hence an allow list by kind: an option that is neither on it nor known to be useless for bitcode is refused by
name. Allowed kinds: target and CPU, optimization, code generation, debug information and diagnostics, unless the option
takes a file. The options are in replay_option_tables.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from components.core.compiler import replay_option_tables as tables


@dataclass
class Selection:
    """The recorded options that are kept and those that are refused.

    Attributes:
        kept: kept arguments, in their order.
        refused: names of the options that are not on the allow list, as --allow-cc1-option takes them; arguments that
            are not options or that name a response file are listed unchanged.
    """

    kept: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class MissingValue(Exception):
    """The arguments end after an option, `args[0]`, that requires a value."""


def select_options(
    recorded: Sequence[str],
    is_cc1: bool,
    allowed: Collection[str] = (),
    resolve: Callable[[str], str | None] = lambda argument: None,
) -> Selection:
    """Select the recorded arguments of a module that a replay keeps.

    Args:
        recorded: the arguments, without "-cc1".
        is_cc1: whether these are arguments of cc1, as opposed to clang's driver.
        allowed: names of options that are kept although they are not on the allow list, as in `Selection.refused`.
        resolve: maps an argument that names a file of the corpus to the argument for the replay, any other to None.

    Raises:
        MissingValue: the arguments end inside an option.
    """
    selection = Selection()
    for_cc1: list[str] = []
    arguments = iter(recorded)
    dropped = tables.DROPPED if is_cc1 else tables.DROPPED | tables.DROPPED_DRIVER
    dropped_or_joined = tables.DROPPED_WITH_VALUE_OR_JOINED + (() if is_cc1 else tables.DROPPED_LIBRARIES)
    # What the previous argument was: "-x" may be followed by the driver's input file, "kept" and "refused" options by
    # their value.
    previous = ""
    for argument in arguments:
        before, previous = previous, ""
        if not argument.startswith("-") and before in ("-x", "kept", "refused") and not argument.startswith("@"):
            if before == "kept":
                selection.kept.append(argument)
            continue
        if argument == "-Xclang" and not is_cc1:
            for_cc1.append(_value(arguments, argument))
        elif argument == "-mllvm":
            # The value is an LLVM option, whatever it looks like.
            _select_llvm_option(_value(arguments, argument), selection, allowed)
        elif argument in tables.DROPPED_WITH_VALUE or argument in dropped_or_joined:
            _value(arguments, argument)
            previous = argument
        elif argument.startswith(tables.DROPPED_JOINED_WITH_VALUE):
            _value(arguments, argument)
        elif argument in dropped or argument.startswith(tables.DROPPED_PREFIXES):
            continue
        elif argument in tables.KEPT_WITH_VALUE:
            value = _value(arguments, argument)
            if value.startswith("@"):  # clang expands response files before it parses options
                selection.refused.append(value)
            selection.kept += [argument, value]
        elif is_cc1 and (resolved := resolve(argument)) is not None:
            selection.kept.append(resolved)
        elif _is_allowed(argument, is_cc1):
            selection.kept.append(argument)
        elif argument.startswith(dropped_or_joined):
            previous = "-x" if argument.startswith("-x") else ""
        elif argument.startswith("-") and _name(argument) in allowed:
            selection.kept.append(argument)
            previous = "kept"
        else:
            selection.refused.append(_name(argument))
            previous = "refused"
    if for_cc1:
        inner = select_options(for_cc1, True, allowed)
        selection.kept += [word for argument in inner.kept for word in ("-Xclang", argument)]
        selection.refused += inner.refused
    return selection


def group_options(arguments: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield each argument together with its value, if it has one.

    Raises:
        MissingValue: the arguments end inside an option.
    """
    with_value = {"-mllvm", "-Xclang"} | tables.DROPPED_WITH_VALUE | tables.KEPT_WITH_VALUE
    with_value.update(tables.DROPPED_WITH_VALUE_OR_JOINED)
    iterator = iter(arguments)
    for argument in iterator:
        has_value = argument in with_value or argument.startswith(tables.DROPPED_JOINED_WITH_VALUE)
        yield (argument, _value(iterator, argument)) if has_value else (argument,)


def _is_allowed(argument: str, is_cc1: bool) -> bool:
    if argument in tables.KEPT or (is_cc1 and argument in tables.KEPT_CC1):
        return True
    if argument.startswith("-Wa,"):
        return not is_cc1 and set(argument.split(",")[1:]) <= tables.ASSEMBLER_FLAGS
    name, equals, _ = argument.partition("=")
    if equals and name in tables.KEPT_JOINED:
        return True
    if name.startswith(tables.REFUSED_PREFIXES):
        return False
    return tables.KEPT_PATTERN.fullmatch(argument) is not None


def _select_llvm_option(option: str, selection: Selection, allowed: Collection[str]) -> None:
    match = tables.LLVM_OPTION.fullmatch(option)
    if match is not None and match[1].startswith(tables.DROPPED_LLVM_PREFIX):
        return
    if _is_allowed_llvm(option, match) or (_llvm_name(option) in allowed and not option.startswith("@")):
        selection.kept += ["-mllvm", option]
    else:
        selection.refused.append(_llvm_name(option))


def _is_allowed_llvm(option: str, match: re.Match[str] | None) -> bool:
    if match is None:
        # The value of the option before: -mllvm -threshold -mllvm 3.
        return tables.LLVM_VALUE.fullmatch(option) is not None
    name, value = match[1], match[2]
    if name in tables.LLVM_REFUSED or tables.LLVM_REFUSED_WORDS & set(re.split("[-_.]", name)):
        return False
    if value is None or tables.LLVM_VALUE.fullmatch(value):
        return True
    return name in tables.LLVM_WITH_WORD and re.fullmatch(r"[\w+-]+", value) is not None


def _name(argument: str) -> str:
    """Return the option's name, including the "=" if a value follows; other arguments unchanged."""
    name, equals, _ = argument.partition("=")
    return name + equals if argument.startswith("-") else argument


def _llvm_name(option: str) -> str:
    return f"-mllvm {option.partition('=')[0]}"


def _value(arguments: Iterator[str], option: str) -> str:
    try:
        return next(arguments)
    except StopIteration:
        raise MissingValue(option) from None
