"""Finds files that assembly in C includes, which LTO reads at the link: from another directory, or later."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from components.shrink.differences.preprocessed import places, preprocessed
from components.shrink.differences.records import Call, LinkerCall

_MENTIONED = re.compile(rb"\.(?:incbin|include)\b")
_BETWEEN_TEXTS = re.compile(r'(?<!\\)"\s*"')
_INCLUDED = re.compile(r'\.(?:incbin|include)\s+\\"((?:[^"\\]|\\\\)+)\\"')


def files_read_by_the_linker(
    calls: Iterable[Call], links: Sequence[Call | LinkerCall], clang: Path, root: Path
) -> list[str]:
    """Return sentences on files that assembly in C includes and that are others at a link than at the compile: in
    another directory, or written since."""
    found = []
    for call, text in preprocessed(calls, clang, _MENTIONED):
        place = places(text)
        for match in _INCLUDED.finditer(_BETWEEN_TEXTS.sub("", text)):
            path = call.path(match[1])
            others = [one for one in dict.fromkeys(link.path(match[1]) for link in links) if one != path]
            where = f"assembly in {place(len(text)).rpartition(':')[0].removeprefix(f'{root}/')}"
            if other := next(filter(os.path.exists, others), ""):
                shown = (one.removeprefix(f"{root}/") for one in (path, other))
                found.append("{} includes {}, and LTO may read {} in its place".format(where, *shown))
            elif _is_newer(path, call.object):
                shown_path = path.removeprefix(f"{root}/")
                found.append(f"{where} includes {shown_path}, which the build wrote again before LTO reads it")
    return list(dict.fromkeys(found))


def _is_newer(path: str, than: str) -> bool:
    return os.path.exists(path) and os.path.exists(than) and os.stat(path).st_mtime_ns > os.stat(than).st_mtime_ns
