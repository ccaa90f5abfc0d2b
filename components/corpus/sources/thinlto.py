"""ThinLTO index of a module, which lists the functions that were imported into it and from where.

distributed: `clang -fthinlto-index=INDEX -x ir MODULE` compiles each object separately, and the object contains these
arguments along with its bitcode. local: lld compiles all modules itself and saves bitcode and index of each, but no
arguments.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from components.corpus.extraction.file_io import read, write
from components.corpus.extraction.outcome import Outcome
from components.corpus.outcome_kind import OutcomeKind
from components.corpus.sources.folder import SAVED_MODULE_SUFFIX
from components.corpus.sources.objects import ObjectFile

INDEX_SUFFIX = ".thinlto.bc"
MISSING_INDEX_WARNING = "compiled with -fthinlto-index=, extracted without the index"
_OPTION = "-fthinlto-index="


def index_of(arguments: Iterable[str], directory: str) -> str | None:
    """Return the path of the index that cc1's arguments name (relative to `directory` unless absolute), or None."""
    for argument in arguments:
        if argument.startswith(_OPTION):
            return os.path.join(directory, argument.removeprefix(_OPTION))
    return None


def copy_saved(item: ObjectFile, output: str) -> Outcome:
    """Copy the bitcode and the index that lld saved next to the object to `output`."""
    try:
        index = read(item.path + INDEX_SUFFIX)
        bitcode = read(item.path + SAVED_MODULE_SUFFIX)
    except FileNotFoundError as error:
        return Outcome(item, OutcomeKind.NO_INDEX, f"no {error.filename}: link with -Wl,--thinlto-emit-index-files")
    except OSError as error:
        return Outcome(item, OutcomeKind.FAILED, str(error))
    base = f"{output}/{item.name}"
    write(f"{base}.bc", bitcode)
    write(f"{base}{INDEX_SUFFIX}", index)
    return Outcome(item, OutcomeKind.EXTRACTED)
