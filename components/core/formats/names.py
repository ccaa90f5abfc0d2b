"""Function names in text files."""

from __future__ import annotations


def replace_invalid_utf8(name: str) -> str:
    """Replace the bytes of a symbol that are not UTF-8 (surrogates in `name`), which could not be written."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def is_utf8(name: str) -> bool:
    """Return whether `name` can be written as text; bytes that are not UTF-8 are surrogates in it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
