"""Attributes, pragmas and options of gcc that change what a program does, and that clang ignores or lacks.

Clang's own warnings are no help: builds turn them off, and so do pragmas. The sources are searched for the names, and
only where one is found, clang preprocesses the file: what is left is what it compiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from components.shrink.differences.preprocessed import attribute_lists, balanced, places, preprocessed
from components.shrink.differences.records import Call, linker_words

_ATTRIBUTES = {
    "copy": "alignment and layout",
    "fentry_name": "",
    "fentry_section": "",
    "function_return": "",
    "indirect_branch": "",
    "no_icf": "two equal functions may get one address",
    "no_reorder": "the order of functions and assembly in the object",
    "noinit": "the section .noinit",
    "optimize": "",
    "persistent": "the section .persistent",
    "scalar_storage_order": "the order of bytes in memory",
    "simd": "vector variants of the function",
    "stack_protect": "",
    "symver": "the symbol's version",
    "target": "",
    "transaction_safe": "",
}
"""Attributes that clang does not have, and what they mean where the name does not say it.

The others that it lacks are about warnings and speed: noclone, noipa, externally_visible, nonstring, access,
designated_init, noplt. It ignores some arguments of `target`.
"""
_ALIAS = re.compile(r"\b(?:__)?(?:alias|ifunc|weakref)(?:__)?\b")
"""Attributes of functions for which `copy` is about warnings and speed."""
_TARGET = re.compile(r"fpmath=.*387.*|general-regs-only|cld")
"""Arguments of the attribute `target` that clang ignores."""
_PRAGMA_TARGET = re.compile(rf"no-.*|arch=.*|{_TARGET.pattern}")
"""Arguments of the pragma, which clang ignores, that do more than allow instructions."""
_HARMLESS_OPTIMIZE = re.compile(
    r"-?-?(?:O?[123sgz]|O|O?fast)?|-?f?(?:no-)?(?:align-.*|caller-saves|crossjumping|cse-.*|expensive-optimizations|gcse.*"
    r"|if-conversion2?|inline.*|ipa-.*|ivopts|jump-tables|move-loop.*|omit-frame-pointer|optimize-sibling-calls|partial-.*"
    r"|peel-loops|peephole2?|predictive-commoning|prefetch-.*|rename-registers|reorder-.*|sched.*|shrink-wrap.*|split-.*"
    r"|thread-jumps|tracer|tree-(?!loop-distribute-patterns).*|unroll-.*|unswitch-loops|var-tracking.*|variable-expansion.*"
    r"|vect-cost-model.*|web)"
)
"""Arguments of `optimize` that are about speed. Level 0 is not: it is how code keeps what optimizations drop."""
_NAMES = "|".join(_ATTRIBUTES)
_RARE_NAMES = "|".join(name for name in _ATTRIBUTES if name not in ("copy", "target"))
_MENTIONED = re.compile(
    (
        rf"\b(?:__)?(?:{_RARE_NAMES})(?:__)?\s*[(),\]]|\bscalar_storage_order\b|\bGCC\s+(?:optimize|target)\b"
        rf"|(?:\b__attribute(?:__)?\b|\[\[)[^;{{}}]{{0,200}}?\b(?:__)?copy(?:__)?\s*\("
        rf"|\btarget(?:__)?\s*\([^()]*(?:{_TARGET.pattern.replace('.*', '[^()]*')})|FLOAT_CONST_DECIMAL64"
    ).encode()
)
_ATTRIBUTE = re.compile(rf"\b(?P<name>(?:__)?(?:{_NAMES})(?:__)?)\b")
_PRAGMA = re.compile(
    r"^\s*#\s*pragma\s+(?P<text>GCC\s+(?:optimize|target)\b.*|scalar_storage_order\b.*|STDC\s+FLOAT_CONST_DECIMAL64\b.*)"
)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"|\b(\d+)\b')

_CHANGED_RESULTS: tuple[tuple[str, str, str], ...] = (
    # Option, what it means, the options that take it back.
    (r"-fsso-struct=(?!little-endian)\S*", "the order of bytes of structs", r"-fsso-struct=(?:little-endian|native)"),
    (r"-f(?:wide-)?exec-charset=(?!(?i:utf-?(?:8|32(?:LE)?))$)\S*", "the encoding of texts", ""),
    (r"-finput-charset=(?!(?i:utf-?8|(?:US-)?ASCII)$)\S*", "the encoding of sources", ""),
    (r"-funsigned-bitfields|-fno-signed-bitfields", "bit-fields without a sign", r"-f(?:no-un)?signed-bitfields"),
    (r"-fsingle-precision-constant", "constants of less precision", "-fno-single-precision-constant"),
    (r"-fsignaling-nans", "exceptions of floating point", "-fno-signaling-nans"),
    (r"-fno-merge-constants", "which constants have an address of their own", "-fmerge-(?:all-)?constants"),
    (r"-fkeep-(?:inline|static)-functions", "which functions are kept", r"-fno-keep-(?:inline|static)-functions"),
    (r"-fkeep-gc-roots-live", "which pointers a garbage collector finds", "-fno-keep-gc-roots-live"),
    (r"-fno-allocation-dce", "which allocations are made", "-fallocation-dce"),
    (r"-fno-enforce-eh-specs", "what happens to exceptions that a function may not throw", "-fenforce-eh-specs"),
    (r"-fstack-protector-explicit", "which functions are protected", "-fno-stack-protector"),
    (r"-fno-unit-at-a-time", "the order of functions and assembly in the object", "-funit-at-a-time"),
    (r"-fnon-call-exceptions", "exceptions of instructions that trap", "-fno-non-call-exceptions"),
    (r"-fpcc-struct-return", "how functions return structs", "-freg-struct-return"),
    (r"-f(?:call-saved|call-used|fixed)-\w+", "what registers are for", ""),
    (r"-fleading-underscore", "the names of symbols", "-fno-leading-underscore"),
    (r"-fstrict-volatile-bitfields", "accesses to volatile memory", "-fno-strict-volatile-bitfields"),
    (r"-fno-toplevel-reorder", "the order of functions and assembly in the object", "-ftoplevel-reorder"),
    (r"-fno-tree-loop-distribute-patterns", "loops that stay loops", "-ftree-loop-distribute-patterns"),
    (r"-fwrapv-pointer", "what a pointer's overflow does", "-fno-wrapv-pointer"),
    (r"-fstack-limit-\S+", "what happens when the stack is full", "-fno-stack-limit"),
    (r"-fstack-check(?:=(?!no$)\S*)?", "what happens when the stack is full", r"-fno-stack-check|-fstack-check=no"),
    (r"-fvtable-verify=(?!none)\S+", "checks of virtual tables", "-fvtable-verify=none"),
    (r"-fharden-\S+", "checks of comparisons", r"-fno-harden-\S+"),
    (r"-finstrument-functions-exclude-\S+", "which functions are instrumented", ""),
    (r"-fabi-version=(?!0$|17$)\d+", "names and layout of C++", "-fabi-version=(?:0|17)"),
    (r"-fno-weak", "which symbols are weak", "-fweak"),
    (
        r"-fstrong-eval-order(?:=all)?",
        "the order of evaluation",
        r"-fno-strong-eval-order|-fstrong-eval-order=(?:some|none)",
    ),
    (r"-fgnu-tm", "transactions", "-fno-gnu-tm"),
    (r"-mabi=ms", "how functions are called", "-mabi=sysv"),
    (r"-mfpmath=(?:387|both|sse,387|387,sse|sse\+387|387\+sse)", "precision of floating point", "-mfpmath=sse"),
    (r"-mpc(?:32|64)", "precision of floating point", "-mpc80"),
    (r"-mindirect-branch=(?!keep)\S+", "how indirect branches are made", "-mindirect-branch=keep"),
    (r"-mfunction-return=thunk(?:-inline)?", "how functions return", "-mfunction-return=keep"),
    (r"-m(?:record|nop)-mcount|-mrecord-return|-minstrument-return=(?!none)\S+", "what is instrumented", ""),
    (
        r"-specs=(?!/usr/(?:share/dpkg|lib/rpm)/)\S+|--specs=(?!/usr/(?:share/dpkg|lib/rpm)/)\S+",
        "what that file says",
        "",
    ),
    (
        r"-Wl,--?default(?:-imported)?-symver|-Wl,--?(?:dep)?audit\S*|-Wl,-P\S*|-Wl,--?embedded-relocs"
        r"|-Wl,-z,(?:globalaudit|ibt|ibtplt|unique-symbol)",
        "what the file says to loaders",
        "",
    ),
    (r"-Wl,--?(?:dynamic-list-(?:data|cpp-\w+)|gc-keep-exported)", "what the program exports", ""),
    (r"-Wl,--?(?:require-defined|section-ordering-file|mri-script)\S*", "what is linked", ""),
)
_OPTIONS = tuple(
    (re.compile(option), meaning, re.compile(back or r"(?!)")) for option, meaning, back in _CHANGED_RESULTS
)
_DEFINED_FOR_ASSEMBLY = re.compile(r"(?:-Wa,(?:.*,)?)?--?defsym\b.*")
_SEVERAL_DEFINITIONS = re.compile(r"-Wl,-z,muldefs|-Wl,--?allow-multiple-definition")
_INIT = re.compile(r"-Wl,--?(?:init|fini)(?:=.*)?")
_LEVEL = re.compile(r"-O\w*")
_INTERESTING = re.compile(
    "|".join(f"(?:{part})" for option, _, back in _CHANGED_RESULTS for part in (option, back) if part)
)


def ignored_options(calls: Iterable[Call]) -> dict[str, str]:
    """Return the options of gcc in effect that change what a program does and that clang ignores or lacks, each with
    its meaning and, if it is not for all, the first source that is compiled with it."""
    found: dict[str, str] = {}
    for call in calls:
        words = [word for word in linker_words(call.arguments.words) if _INTERESTING.fullmatch(word)]
        if not words or not (call.compiles_text or call.links):
            continue
        for option, meaning, back in _OPTIONS:
            active = ""
            for word in words:
                active = word if option.fullmatch(word) else "" if back.fullmatch(word) else active
            if active and active not in found:
                where = f" ({Path(call.sources[0]).name})" if call.sources else ""
                found[active] = f"clang ignores {active}{where}, which determines {meaning}"
    return found


def ignored_by_lto(calls: Iterable[Call], gnu: bool) -> list[str]:
    """Return sentences on the options that LTO does not see at the compile or at the link.

    Args:
        gnu: whether it is gcc's LTO.
    """
    found = {}
    for call in calls:
        words = list(linker_words(call.arguments.words))
        if gnu:
            if call.links and (word := next(filter(_INIT.fullmatch, words), "")):
                found[word] = f"gcc's LTO does not know the function of {word} at the link"
            continue
        if call.compiles_text and (word := next(filter(_DEFINED_FOR_ASSEMBLY.fullmatch, words), "")):
            found[word] = f"the assembler gets {word} at the compile, and LTO assembles at the link"
        if call.links and (word := next(filter(_SEVERAL_DEFINITIONS.fullmatch, words), "")):
            found[word] = f"with {word} a file may call its own of several functions, and LTO knows one"
    return list(found.values())


def replaced_levels(calls: Iterable[Call]) -> list[str]:
    """Return sentences on the levels of optimization that mean more than speed and that the level for size replaces:
    -O0 of some files only, by which code keeps what optimizations drop, and -Ofast with its -ffast-math."""
    levels: dict[str, str] = {}
    for call in calls:
        level = next((word for word in reversed(call.arguments.words) if _LEVEL.fullmatch(word)), "")
        levels |= dict.fromkeys(call.sources, level)
    names = [Path(path).name for path, level in levels.items() if level == "-O0"]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    found = []
    if names and len(names) < len(levels):
        found.append(f"{names[0]}{more}: compiled for size in place of -O0, which the build gives some files only")
    if "-Ofast" in levels.values():
        found.append("compiled for size in place of -Ofast, without its -ffast-math: floating point is that of IEEE")
    return found


def ignored_attributes(calls: Iterable[Call], clang: Path, root: Path) -> list[str]:
    """Return sentences on the attributes and pragmas that change what a program does and that clang ignores."""

    found: dict[tuple[str, str], str] = {}
    for _, text in preprocessed(calls, clang, _MENTIONED):
        for what, place in _of_text(text):
            found.setdefault((what, place), f"clang ignores {what} at {place.removeprefix(f'{root}/')}")
    return list(found.values())


def _of_text(text: str) -> Iterator[tuple[str, str]]:
    place = places(text)
    for attributes in attribute_lists(text):
        content = attributes.content
        for name in _ATTRIBUTE.finditer(content):
            if not attributes.has_name_at(name.start()):
                continue
            rest = content[name.end() :].lstrip()
            arguments = balanced(rest, 1) if rest.startswith("(") else ""
            plain = name["name"].strip("_")
            if _is_harmless_attribute(plain, arguments, content):
                continue
            shown = f"the attribute {plain}{f'({arguments.strip()})' if arguments else ''}"
            meaning = _ATTRIBUTES[plain]
            yield shown + (f", which determines {meaning}," if meaning else ""), place(attributes.start)
    if "pragma" in text:
        at = 0
        for line in text.splitlines(keepends=True):
            if (pragma := _PRAGMA.match(line)) and not _is_default(pragma["text"]):
                yield f"#pragma {' '.join(pragma['text'].split())}", place(at)
            at += len(line)


def _is_default(pragma: str) -> bool:
    if re.match(r"GCC\s+target\b", pragma):
        return not any(map(_PRAGMA_TARGET.fullmatch, _arguments(pragma)))
    if pragma.startswith("GCC"):
        return _is_harmless(pragma)
    return bool(re.search(r"\b(?:little-endian|default|OFF|DEFAULT)\b", pragma))


def _is_harmless_attribute(name: str, arguments: str, content: str) -> bool:
    """Return whether an attribute with arguments, in a list of attributes, changes nothing that a program does."""
    if name == "copy":
        return not arguments or _ALIAS.search(content) is not None
    if name == "target":
        return not any(map(_TARGET.fullmatch, _arguments(arguments)))
    return name == "optimize" and _is_harmless(arguments)


def _is_harmless(arguments: str) -> bool:
    parts = _arguments(arguments)
    return bool(parts) and all(map(_HARMLESS_OPTIMIZE.fullmatch, parts))


def _arguments(text: str) -> list[str]:
    """Return the texts and numbers of an attribute or a pragma, which may be lists."""
    values = [string or number for string, number in _STRING.findall(text)]
    return [part.strip() for value in values for part in value.split(",")]


def dropped_meaning(dropped: Sequence[str]) -> list[str]:
    """Return sentences on the options that were left out because clang lacks them and that change what a program
    does."""
    return [
        f"clang does not have {word}, which determines {meaning}"
        for word in dropped
        for option, meaning, _ in _OPTIONS
        if option.fullmatch(word)
    ]
