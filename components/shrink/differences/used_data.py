"""Finds data and functions with the attribute `used` that a linked file lost, because --gc-sections drops what nothing
reaches."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from components.core.projects.flags.linked_files import find_binaries
from components.shrink.differences.linked_files import defined_symbols
from components.shrink.differences.preprocessed import attribute_lists, preprocessed
from components.shrink.differences.records import Call

_USED = re.compile(r"\b(?:__)?used(?:__)?\b")
_RETAIN = re.compile(r"\b(?:__)?retain(?:__)?\b")
_MENTIONED = re.compile(rb"(?:\b__attribute(?:__)?\b|\[\[)[^;{}]{0,200}?\b(?:__)?used(?:__)?\b")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\(|\[|$)")
_MAX_DECLARATION = 500
_DECLARATION_START = re.compile(r"[;{}]|^#.*$", re.MULTILINE)
_END = re.compile(r"[;={]")


def lost_used_data(calls: Iterable[Call], clang: Path, nm: Path, own: Path, files: Path) -> list[str]:
    """Return sentences on the linked files that have fewer symbols with the attribute `used` than those of the user.

    Args:
        own: what the user's own build linked.
        files: what the other linked.
    """
    names: set[str] = set()
    for _, text in preprocessed(calls, clang, _MENTIONED):
        names |= _used_names(text)
    found = []
    for name, path in sorted(find_binaries(own)) if names else ():
        after = defined_symbols(files / name, nm)
        if not after:  # stripped
            continue
        lost = sorted(_source_name(symbol) for symbol in defined_symbols(path, nm) - after)
        if used := [symbol for symbol in dict.fromkeys(lost) if symbol in names]:
            more = f" and {len(used) - 1} more" if len(used) > 1 else ""
            found.append(f"{name} has no {used[0]}{more} any more: attribute used, but nothing reaches it")
    return found


def _used_names(text: str) -> set[str]:
    names = set()
    for attributes in attribute_lists(text):
        content = attributes.content
        used = _USED.search(content)
        if used is None or not attributes.has_name_at(used.start()) or _RETAIN.search(content):
            continue
        before = _DECLARATION_START.split(text[max(0, attributes.start - _MAX_DECLARATION) : attributes.start])
        behind = text[attributes.end : attributes.end + _MAX_DECLARATION]
        end = _END.search(behind)
        declaration = before[-1] + " " + (behind[: end.start()] if end else behind)
        for other in reversed(list(attribute_lists(declaration))):
            declaration = f"{declaration[: other.start]} {declaration[other.end :]}"
        if name := _NAME.search(declaration.strip()):
            names.add(name[1])
    return names


def _source_name(symbol: str) -> str:
    """Return the name of a variable or function of C++ without scopes, as far as it is simple, or the symbol of C."""
    names = re.findall(r"\d+([A-Za-z_]\w*)", symbol) if symbol.startswith("_Z") else ()
    return names[-1] if names else symbol.partition(".")[0]
