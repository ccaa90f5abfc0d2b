"""What a ThinLTO build adds to a module: its index, which says what was imported into it and from where.

distributed: `clang -fthinlto-index=INDEX -x ir MODULE` compiles each object on its own, and the object keeps these
arguments beside its bitcode. local: lld compiles all modules itself; it saves bitcode and index of each, no arguments.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal

from components.corpus.files import read, write
from components.corpus.folder import SAVED
from components.corpus.objects import ObjectFile
from components.corpus.outcome import EXTRACTED, FAILED, NO_INDEX, Outcome

ThinLto = Literal["distributed", "local"]
BUILDS: tuple[ThinLto, ...] = ("distributed", "local")
INDEX = ".thinlto.bc"
INDEX_LOST = "compiled with -fthinlto-index=, extracted without the index"
_OPTION = "-fthinlto-index="


def index_of(arguments: Iterable[str], directory: str) -> str | None:
    """The path of the index that cc1's arguments name, which is relative to `directory` unless it is absolute."""
    for argument in arguments:
        if argument.startswith(_OPTION):
            return os.path.join(directory, argument.removeprefix(_OPTION))
    return None


def copy_saved(item: ObjectFile, output: str) -> Outcome:
    """Copy to `output` the bitcode and the index that lld saved beside the object."""
    try:
        index = read(item.path + INDEX)
        bitcode = read(item.path + SAVED)
    except FileNotFoundError as error:
        return Outcome(item, NO_INDEX, f"no {error.filename}: link with -Wl,--thinlto-emit-index-files")
    except OSError as error:
        return Outcome(item, FAILED, str(error))
    base = f"{output}/{item.name}"
    write(f"{base}.bc", bitcode)
    write(f"{base}{INDEX}", index)
    return Outcome(item, EXTRACTED)
