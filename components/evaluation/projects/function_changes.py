"""Names the functions that differ most between two builds of the same code, from the symbol tables of binaries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from components.core.compiler.objects.archive import is_archive, member_contents
from components.core.compiler.objects.elf import Elf
from components.core.compiler.objects.function_names import demangle, without_lambda_numbers
from components.evaluation.metrics_types import FunctionChange
from components.platform.errors import UserError

_FUNCTION_TYPES = (2, 10)
"""STT_FUNC and STT_GNU_IFUNC of the ELF specification."""
_SUFFIX = re.compile(r"(?:\.(?:llvm|part|constprop|isra|lto_priv)\.\d+|\.(?:cold|warm)|\.\d+)+$")
"""What compilers add to the name of a part or a copy of a function; its bytes are those of the function."""
_OUTLINED = re.compile(r"OUTLINED_FUNCTION_[\d_]+")
_LAMBDA = re.compile(r"Ul|\d\$_\d+")
"""The mangled name may be that of a lambda: an unnamed type of the Itanium ABI, or clang's of internal linkage."""


def function_sizes(path: Path) -> dict[str, int]:
    """Return the bytes of each function of a linked file or static library, by mangled name, from its symbol table.

    Names of one address are one function, under the first name. Functions of the same name add up, and outlined pieces
    are one entry. Empty if the file is stripped.

    Raises:
        UserError: the file is damaged.
    """
    data = memoryview(path.read_bytes())
    sizes: Counter[str] = Counter()
    for member in member_contents(data) if is_archive(data) else (data,):
        sizes.update(_sizes(Elf(member)))
    return dict(sizes)


def function_changes(
    pairs: Iterable[tuple[str, Mapping[str, int], Mapping[str, int]]], limit: int
) -> list[FunctionChange]:
    """Return the functions with the largest changes of both directions, those that grew most first.

    Args:
        pairs: name of a binary, its `function_sizes` in the old and in the new build. Without those of both, as for
            stripped files, it is skipped.
        limit: number of functions of each direction.
    """
    changes: list[FunctionChange] = []
    for binary, before, after in pairs:
        if before and after:
            changes += compare_functions(binary, before, after)
    return largest_changes(changes, limit)


def compare_functions(binary: str, before: Mapping[str, int], after: Mapping[str, int]) -> list[FunctionChange]:
    """Return the functions whose bytes differ, by mangled name.

    Lambdas that only one side has, under a name that other compilers give them, are compared by what they share.

    Args:
        binary: the program, library or module.
        before, after: mangled name -> bytes.
    """
    sizes = [dict(before), dict(after)]
    alone = [
        [name for name in own if name not in other and _LAMBDA.search(name)] for own, other in (sizes, sizes[::-1])
    ]
    if all(alone):
        shared = [list(map(without_lambda_numbers, demangle(names))) for names in alone]
        common = set(shared[0]) & set(shared[1])
        for own, names, keys in zip(sizes, alone, shared, strict=True):
            for name, key in zip(names, keys, strict=True):
                if key in common:
                    own[key] = own.get(key, 0) + own.pop(name)
    old, new = sizes
    return [
        FunctionChange(binary=binary, function=name, old=old.get(name, 0), new=new.get(name, 0))
        for name in old.keys() | new.keys()
        if old.get(name, 0) != new.get(name, 0)
    ]


def largest_changes(changes: Iterable[FunctionChange], limit: int) -> list[FunctionChange]:
    """Return at most `limit` changes of each direction, the largest growth first, then the largest reduction.

    Changes of the same function and bytes in several modules or binaries, such as those of an inline function, count
    once. `symbol` keeps the mangled name.
    """
    once: dict[tuple[str, int, int], FunctionChange] = {}
    for change in sorted(changes, key=lambda change: (change.old - change.new, change.binary, change.function)):
        once.setdefault((change.function, change.old, change.new), change)
    ordered = list(once.values())
    grown = [change for change in ordered[:limit] if change.new > change.old]
    shrunk = [change for change in ordered[::-1][:limit] if change.new < change.old]
    chosen = [*grown, *shrunk]
    for change, name in zip(chosen, demangle([change.function for change in chosen]), strict=True):
        change.symbol, change.function = change.function, name
    return chosen


def _sizes(elf: Elf) -> Counter[str]:
    try:
        symbols = elf.symbols()
    except UserError:
        return Counter()  # stripped
    rows = np.flatnonzero(np.isin(symbols.type, _FUNCTION_TYPES) & (symbols.section > 0) & (symbols.size > 0))
    at: dict[tuple[int, int], tuple[str, int]] = {}
    names = elf.symbol_names(symbols.name[rows])
    for row, name in sorted(zip(rows.tolist(), names, strict=True), key=lambda pair: pair[1]):
        place = int(symbols.section[row]), int(symbols.value[row])
        at.setdefault(place, (name, int(symbols.size[row])))
    sizes: Counter[str] = Counter()
    for name, size in at.values():
        sizes["outlined pieces" if _OUTLINED.fullmatch(name) else _SUFFIX.sub("", name)] += size
    return sizes
