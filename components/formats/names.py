"""Names of functions as files of text have them."""

from __future__ import annotations


def readable(name: str) -> str:
    """A symbol's name without bytes that are no UTF-8, which `name` has as surrogates: they could not be written."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def is_utf8(name: str) -> bool:
    """Whether a name can be written as text: bytes that are no UTF-8 are surrogates in it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
