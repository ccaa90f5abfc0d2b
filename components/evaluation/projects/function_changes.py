"""Names the functions that differ most between two builds of the same code, from the symbol tables of binaries."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from components.core.compiler.objects.elf import Elf
from components.core.projects.flags import archive
from components.evaluation.metrics_types import FunctionChange
from components.platform.errors import UserError

_FUNCTION_TYPES = (2, 10)
"""STT_FUNC and STT_GNU_IFUNC of the ELF specification."""
_SUFFIX = re.compile(r"(?:\.(?:llvm|part|constprop|isra|lto_priv)\.\d+|\.(?:cold|warm)|\.\d+)+$")
"""What compilers add to the name of a part or a copy of a function; its bytes are those of the function."""
_OUTLINED = re.compile(r"OUTLINED_FUNCTION_[\d_]+")
_DEMANGLERS = ("llvm-cxxfilt-19", "llvm-cxxfilt", "c++filt")
_TIMEOUT_S = 60.0


def function_sizes(path: Path) -> dict[str, int]:
    """Return the bytes of each function of a linked file or static library, by mangled name, from its symbol table.

    Names of one address are one function, under the first name. Functions of the same name add up, and outlined pieces
    are one entry. Empty if the file is stripped.

    Raises:
        UserError: the file is damaged.
    """
    data = memoryview(path.read_bytes())
    sizes: Counter[str] = Counter()
    for member in archive.members(data) if archive.is_archive(data) else (data,):
        sizes.update(_sizes(Elf(member)))
    return dict(sizes)


def function_changes(pairs: Iterable[tuple[str, Path, Path]], limit: int) -> list[FunctionChange]:
    """Return the functions with the largest changes of both directions, those that grew most first.

    Args:
        pairs: name of a binary, its file in the old and in the new build.
        limit: number of functions of each direction.
    """
    changes: list[FunctionChange] = []
    for binary, old, new in pairs:
        try:
            before, after = function_sizes(old), function_sizes(new)
        except UserError:
            continue  # its sizes are compared, and the damage is named, elsewhere
        if before and after:
            changes += [
                FunctionChange(binary=binary, function=name, old=before.get(name, 0), new=after.get(name, 0))
                for name in before.keys() | after.keys()
                if before.get(name, 0) != after.get(name, 0)
            ]
    changes.sort(key=lambda change: (change.old - change.new, change.binary, change.function))
    grown = [change for change in changes[:limit] if change.new > change.old]
    shrunk = [change for change in reversed(changes[-limit:]) if change.new < change.old]
    chosen = [*grown, *shrunk]
    for change, name in zip(chosen, _demangle([change.function for change in chosen]), strict=True):
        change.function = name
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


def _demangle(names: Sequence[str]) -> Sequence[str]:
    """Return the names as the source has them, or as they are if there is no demangler."""
    program = next((path for path in map(shutil.which, _DEMANGLERS) if path), None)
    if program is None or not names:
        return names
    text = "\n".join(name.replace("\n", " ") for name in names)
    done = subprocess.run(
        [program], input=text, capture_output=True, text=True, errors="surrogateescape", timeout=_TIMEOUT_S
    )
    lines = done.stdout.split("\n")[: len(names)]
    return lines if done.returncode == 0 and len(lines) == len(names) else names
