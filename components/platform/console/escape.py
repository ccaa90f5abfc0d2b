"""Escapes text from outside, such as names of functions and files or answers of servers, where people read it.

Terminals obey control characters, bidirectional controls reorder what is shown, logs of CI systems obey lines that
begin with "::" (GitHub) or contain "##[" (GitHub, Azure) or "##teamcity[", Markdown contains HTML, and spreadsheets
compute cells that begin with "=". `say`, errors and `table_console` escape all that they print; whoever writes Markdown
or CSV calls the functions below.
"""

from __future__ import annotations

import re
import unicodedata

_ESCAPED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of controls, invisible and bidirectional formats, surrogates, and separators of lines."""
_LINE_COMMAND = re.compile(r"^(\s*):(?=:)")
_COMMAND = re.compile(r"#(?=#\w*\[)")
_MARKDOWN = re.compile(r"[\\`*_\[\]<>|~&$#]")
"""Every underscore: KFP's web page (markdown-to-jsx) takes .gcc_except_table for italics, as GitHub does not."""
_NO_USER = r"""/?#\s"'<>|\\`,"""
_CREDENTIALS = re.compile(
    rf"(?:(https?://)[^{_NO_USER}]+|(\w://)[^{_NO_USER}:]*:[^{_NO_USER}]*)@(?!sha256:)", re.IGNORECASE
)
"""The user in a URL: with HTTP it may be a token, else only with a password. A digest after a host is none."""
_FORMULA = ("=", "+", "-", "@", "\t")


def escape_line(text: str) -> str:
    r"""Return `text` as one line that is safe to print: "\n" becomes \n, other characters \x1b, \u202e.

    A byte that is not UTF-8, which Python keeps as a surrogate, becomes \xff. A user or a password in a URL becomes
    ***, because logs are kept and shared. Escaping twice changes nothing more.
    """
    escaped = _escape_and_mask(text)
    return _COMMAND.sub(r"\\x23", _LINE_COMMAND.sub(r"\1\\x3a", escaped))


def escape_lines(text: str) -> str:
    """Escape a message of several lines. Every line but the first is indented, so none looks like another message."""
    first, *others = text.split("\n")
    indented = [line if not line or line.startswith((" ", "\t")) else f"  {line}" for line in others]
    return "\n".join(map(escape_line, (first, *indented)))


def markdown_text(text: str) -> str:
    """Return `text` as text of one line in Markdown, in which nothing is markup or HTML."""
    escaped = _MARKDOWN.sub(r"\\\g<0>", _escape_and_mask(text))
    return f"\\{escaped}" if escaped.startswith(("-", "+", "=")) else escaped


def markdown_code(text: str) -> str:
    """Return `text` as code within a line of Markdown."""
    return f"`{escape_line(text).replace('`', chr(39))}`"


def csv_text(text: str) -> str:
    """Return a name as the cell of a CSV file: without control characters, and never a formula of a spreadsheet.

    As is usual, an apostrophe precedes what would be a formula. Numbers need no escaping.
    """
    escaped = _escape_and_mask(text)
    return f"'{escaped}" if escaped.startswith(_FORMULA) else escaped


def _escape_and_mask(text: str) -> str:
    """Return `text` without control characters, and without users in URLs."""
    escaped = text if text.isprintable() else "".join(map(_escape_character, text))
    return _CREDENTIALS.sub(r"\1\2***@", escaped)


def _escape_character(character: str) -> str:
    if character == "\t" or unicodedata.category(character) not in _ESCAPED:
        return character
    code = ord(character)
    if character == "\n":
        return "\\n"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
