"""Selects the recorded options of a module that a replay keeps.

A corpus may come from an untrusted source, and compiler options can load plugins, read profiles and write side
outputs. Hence an allow list by kind: an option that is neither on it nor known to be useless for bitcode is refused by
name. Allowed kinds: target and CPU, optimization, code generation, debug information and diagnostics, unless the option
takes a file. The options are in replay_option_tables.py and llvm_option_tables.py.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from components.core.compiler.replay import llvm_option_tables as llvm
from components.core.compiler.replay import replay_option_tables as tables


@dataclass
class Selection:
    """The recorded options that are replayed and those that are refused.

    Attributes:
        arguments: those to replay, in their order: ["-triple", "x86_64-pc-linux-gnu", "-Oz"].
        refused: names of the options that are not on the allow list, as --allow-cc1-option takes them; arguments that
            are not options or that name a response file are listed unchanged.
    """

    arguments: list[str] = field(default_factory=list)
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
    dropped_or_joined = tables.DROPPED_WITH_VALUE_OR_JOINED + (() if is_cc1 else tables.DROPPED_SEARCH_PATHS)
    # What the previous argument was: "-x" may be followed by the driver's input file, "kept" and "refused" options by
    # their value, an LLVM option by -mllvm and its value.
    previous = llvm_option = ""
    for argument in arguments:
        before, previous = previous, ""
        before_llvm, llvm_option = llvm_option, ""
        if not argument.startswith("-") and before in ("-x", "kept", "refused") and not argument.startswith("@"):
            if before == "kept":
                selection.arguments.append(argument)
            continue
        if argument == "-Xclang" and not is_cc1:
            for_cc1.append(_value(arguments, argument))
        elif argument == "-mllvm":
            # The value is an LLVM option, whatever it looks like.
            llvm_option = _value(arguments, argument)
            _select_llvm_option(llvm_option, before_llvm, selection, allowed)
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
            elif argument in tables.TRIPLE_OPTIONS and not tables.TRIPLE.fullmatch(value):
                selection.refused.append(argument)
            selection.arguments += [argument, value]
        elif argument == "-Xassembler" and not is_cc1:
            value = _value(arguments, argument)
            if tables.ASSEMBLER_FLAG.fullmatch(value) or f"-Wa,{value}" in allowed:
                selection.arguments += [argument, value]
            else:
                selection.refused.append(f"-Wa,{value}")
        elif is_cc1 and (resolved := resolve(argument)) is not None:
            selection.arguments.append(resolved)
        elif _is_allowed(argument, is_cc1):
            selection.arguments.append(argument)
        elif argument.startswith(dropped_or_joined):
            previous = "-x" if argument.startswith("-x") else ""
        elif argument.startswith("-") and _name(argument) in allowed and not is_response_file(_name(argument)):
            selection.arguments.append(argument)
            previous = "kept"
        else:
            selection.refused.append(_name(argument))
            previous = "refused"
    if for_cc1:
        inner = select_options(for_cc1, True, allowed)
        selection.arguments += [word for argument in inner.arguments for word in ("-Xclang", argument)]
        selection.refused += inner.refused
    return selection


def group_options(arguments: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield each argument together with its value, if it has one: -mllvm NAME -mllvm VALUE are one, too.

    Raises:
        MissingValue: the arguments end inside an option.
    """
    with_value = {"-mllvm", "-Xclang", "-Xassembler"} | tables.DROPPED_WITH_VALUE | tables.KEPT_WITH_VALUE
    with_value.update(tables.DROPPED_WITH_VALUE_OR_JOINED)
    rest = deque(arguments)
    while rest:
        argument = rest.popleft()
        if argument in with_value or argument.startswith(tables.DROPPED_JOINED_WITH_VALUE):
            if not rest:
                raise MissingValue(argument)
            group: tuple[str, ...] = (argument, rest.popleft())
            if argument == "-mllvm" and _has_separate_value(group[1], rest):
                group += (rest.popleft(), rest.popleft())
            yield group
        elif rest and argument.startswith("-") and not rest[0].startswith(("-", "@")) and _is_unknown(argument):
            yield argument, rest.popleft()
        else:
            yield (argument,)


def _has_separate_value(option: str, rest: Sequence[str]) -> bool:
    match = llvm.LLVM_OPTION.fullmatch(option)
    return (
        match is not None
        and match[2] is None
        and len(rest) > 1
        and rest[0] == "-mllvm"
        and rest[1][:1] not in ("-", "@")
    )


def _is_unknown(option: str) -> bool:
    is_dropped = option in tables.DROPPED | tables.DROPPED_DRIVER or option.startswith(
        tables.DROPPED_PREFIXES + tables.DROPPED_WITH_VALUE_OR_JOINED
    )
    return not is_dropped and not _is_allowed(option, True)


def _is_allowed(argument: str, is_cc1: bool) -> bool:
    if argument in tables.KEPT:
        return True
    if argument.startswith("-Wa,"):
        return not is_cc1 and all(map(tables.ASSEMBLER_FLAG.fullmatch, argument.split(",")[1:]))
    name, equals, value = argument.partition("=")
    if value.startswith("@"):
        return False
    if equals and name in tables.TRIPLE_OPTIONS:
        return tables.TRIPLE.fullmatch(value) is not None
    if equals and name in tables.KEPT_JOINED:
        return True
    if name.startswith(tables.REFUSED_PREFIXES):
        return False
    return tables.KEPT_PATTERN.fullmatch(argument) is not None


def _select_llvm_option(option: str, before: str, selection: Selection, allowed: Collection[str]) -> None:
    """Keep, drop or refuse the value of -mllvm.

    Args:
        before: the previous argument if it was a value of -mllvm, too: -mllvm -regalloc -mllvm greedy.
    """
    match, of = llvm.LLVM_OPTION.fullmatch(option), llvm.LLVM_OPTION.fullmatch(before)
    if match is None and of is not None and of[2] is None:
        _select_llvm_value(of[1], option, _llvm_name(before), selection, allowed)
    elif match is not None and match[1] in llvm.LLVM_DROPPED:
        return
    elif (match is not None and _is_allowed_llvm(match[1], match[2])) or (
        _llvm_name(option) in allowed and not is_response_file(option)
    ):
        selection.arguments += ["-mllvm", option]
    else:
        selection.refused.append(_llvm_name(option))


def _select_llvm_value(name: str, value: str, option: str, selection: Selection, allowed: Collection[str]) -> None:
    """Keep, drop or refuse the value of an LLVM option, `option` with -mllvm, that was selected without it."""
    if is_response_file(value):
        selection.refused.append(_llvm_name(value))
    elif _is_allowed_llvm(name, value) or option in allowed:
        selection.arguments += ["-mllvm", value]
    elif name not in llvm.LLVM_DROPPED and option not in selection.refused:
        selection.refused.append(option)


def is_harmless_llvm_option(option: str) -> bool:
    """Return whether a value of -mllvm is an option that names neither a file nor a program."""
    match = llvm.LLVM_OPTION.fullmatch(option)
    return match is not None and (match[1] in llvm.LLVM_DROPPED or _is_allowed_llvm(match[1], match[2]))


def _is_allowed_llvm(name: str, value: str | None) -> bool:
    """Return whether an LLVM option is kept."""
    if name not in llvm.LLVM_HARMLESS and (
        name in llvm.LLVM_REFUSED or llvm.LLVM_REFUSED_WORDS & set(re.split("[-_.]", name))
    ):
        return False
    if value is None or llvm.LLVM_VALUE.fullmatch(value):
        return True
    if name in llvm.LLVM_KEYWORD_OPTIONS:
        return llvm.LLVM_KEYWORD.fullmatch(value) is not None
    return is_text_option(name) and llvm.LLVM_TEXT.fullmatch(value) is not None


def is_text_option(name: str) -> bool:
    """Return whether an LLVM option takes a text that names neither a file nor a program."""
    return name in llvm.LLVM_TEXT_OPTIONS or llvm.LLVM_RULE_OPTION.fullmatch(name) is not None


def is_response_file(name: str) -> bool:
    """Return whether a refused argument names a response file, whose content clang would read: "@x", "-mllvm @x",
    "-mtune=@x", whose value the driver gives cc1 as a word of its own."""
    return name.removeprefix("-mllvm ").startswith("@") or "=@" in name


def _name(argument: str) -> str:
    """Return the option's name, including the "=" if a value follows; other arguments, and what names a response file,
    unchanged."""
    name, equals, value = argument.partition("=")
    return name + equals if argument.startswith("-") and not value.startswith("@") else argument


def _llvm_name(option: str) -> str:
    return f"-mllvm {option.partition('=')[0]}"


def _value(arguments: Iterator[str], option: str) -> str:
    try:
        return next(arguments)
    except StopIteration:
        raise MissingValue(option) from None
