"""Members of static libraries: archives of ar, with long names as by GNU or BSD, and thin archives of paths."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from components.core.formats.names import is_utf8
from components.platform.errors import UserError

_MAGIC, _THIN = b"!<arch>\n", b"!<thin>\n"
_HEADER_BYTES = 60
_TABLES = (b"/", b"//", b"/SYM64/", b"__.SYMDEF", b"__.SYMDEF SORTED", b"__.SYMDEF_64")
"""Members that are an index of symbols, or the long names."""
_MAX_NAME_BYTES = 4096
"""Linux opens no file with a longer path."""


class ArchiveError(Exception):
    """The archive is damaged; the message is the rest of a sentence about it."""


@dataclass(frozen=True)
class Member:
    """A member of an archive.

    Attributes:
        name: its name without directories, UTF-8, unique in the archive: "a.2.o" for the second "a.o".
        content: its bytes; None in a thin archive.
        path: of the member's file in a thin archive, else "".
    """

    name: str
    content: memoryview | None
    path: str = ""


def is_archive(start: bytes | memoryview) -> bool:
    """Return whether a file that starts with these 8 or more bytes is an archive, thin or not."""
    return bytes(start[:8]) in (_MAGIC, _THIN)


def read_members(view: memoryview, path: str) -> list[Member]:
    """Return the members of the archive `view`, in its order; `path` is where it lies. ArchiveError if damaged."""
    thin = bytes(view[:8]) == _THIN
    long_names = b""
    members: list[Member] = []
    seen: set[str] = set()
    copies: dict[str, Iterator[int]] = {}
    at = len(_MAGIC)
    while at < len(view):
        header = bytes(view[at : at + _HEADER_BYTES])
        if len(header) < _HEADER_BYTES or header[58:] != b"`\n" or not header[48:58].strip().isdigit():
            raise ArchiveError(f"is damaged: no member starts at byte {at}")
        size, begin = int(header[48:58]), at + _HEADER_BYTES
        field = header[:16].rstrip()
        stored = not thin or field in _TABLES
        if stored and begin + size > len(view):
            raise ArchiveError(f"is truncated: a member ends at byte {begin + size} of {len(view)}")
        content = view[begin : begin + size] if stored else None
        at = begin + (size + size % 2 if stored else 0)
        if field == b"//" and content is not None:
            long_names = bytes(content)
        if field in _TABLES:
            continue
        if field.startswith(b"#1/") and field[3:].isdigit() and content is not None:
            length = int(field[3:])
            name, content = bytes(content[: min(length, _MAX_NAME_BYTES + 1)]).rstrip(b"\0"), content[length:]
        elif field.startswith(b"/") and field[1:].isdigit():
            begins = int(field[1:])
            name = long_names[begins : begins + _MAX_NAME_BYTES + 1].partition(b"\n")[0].removesuffix(b"/")
        else:
            name = field.removesuffix(b"/")
        if name in _TABLES:
            continue
        full_name = os.fsdecode(name)
        short = os.path.basename(full_name)
        if short in ("", ".", "..") or not is_utf8(short) or "\0" in full_name or len(name) > _MAX_NAME_BYTES:
            raise ArchiveError(f"is damaged: the name of the member at byte {begin} is {full_name[:200]!r}")
        if short in seen:
            stem, suffix = os.path.splitext(short)
            numbers = copies.setdefault(short, count(2))  # of many, too, without trying the same numbers again
            short = next(other for n in numbers if (other := f"{stem}.{n}{suffix}") not in seen)
        seen.add(short)
        members.append(Member(short, content, "" if stored else os.path.join(os.path.dirname(path), full_name)))
    return members


def member_contents(view: memoryview) -> list[memoryview]:
    """Return the contents of the members of a static library, in its order.

    Raises:
        UserError: it is damaged, or a thin archive, whose members are separate files.
    """
    if bytes(view[:8]) == _THIN:
        raise UserError("a thin archive does not contain its members", "build the library without the T modifier of ar")
    try:
        members = read_members(view, "")
    except ArchiveError as error:
        raise UserError(f"the static library {error}", "build the library again") from None
    return [member.content for member in members if member.content is not None]
