"""Checks that every command makes of its process before it does any work."""

from __future__ import annotations

import io
import os
import sys
import traceback
from types import TracebackType

from components.platform.console.escape import escape_line
from components.platform.console.progress import LOG_FORMAT_VARIABLE, LOG_FORMATS

_LOCALE_REMEDY = "set LC_ALL=C.UTF-8 or PYTHONUTF8=1"


def prepare_process() -> str:
    """Prepare the standard streams; return the error that ends the command, "" if it can run.

    A closed descriptor of a standard stream is the next one that any library opens, and what is printed would be
    written to that file. A closed input is like an empty one; without output or errors nobody would see the result.
    """
    closed = [name for number, name in enumerate(("input", "output", "error")) if not _open_if_closed(number)]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # whatever the encoding, a name must not end a finished run
    sys.excepthook = _print_traceback
    if "error" in closed:
        sys.stderr = sys.stdout
    if missing := [name for name in closed if name != "input"]:
        return f"error: standard {missing[0]} is closed\n  remedy: redirect it, for example to a file or to /dev/null"
    try:
        directory = os.getcwd()
    except OSError:
        return "error: the working directory does not exist anymore\n  remedy: change to a directory that exists (cd)"
    log_format = os.environ.get(LOG_FORMAT_VARIABLE, LOG_FORMATS[0])
    if log_format not in LOG_FORMATS:
        choices = " or ".join(LOG_FORMATS)
        return f"error: {LOG_FORMAT_VARIABLE} is {log_format!r}\n  remedy: set it to {choices}, or unset it"
    for what, text in (("the working directory", directory), *(("the argument", text) for text in sys.argv[1:])):
        if problem := encoding_problem(text):
            return f"error: {what} {text!r} {problem[0]}\n  remedy: {problem[1]}"
    return ""


def encoding_problem(text: str) -> tuple[str, str] | None:
    """Return the problem of a path or argument that cannot be written as UTF-8, and its remedy; None if it can."""
    try:
        text.encode()
        return None
    except UnicodeEncodeError:
        pass
    try:
        os.fsencode(text).decode()
    except UnicodeError:
        return "is not valid UTF-8", "rename the file or directory"
    return f"cannot be read in the encoding {sys.getfilesystemencoding()}", _LOCALE_REMEDY


def _open_if_closed(number: int) -> bool:
    """Open /dev/null as a closed standard descriptor; return whether it was open."""
    try:
        os.fstat(number)
        return True
    except OSError:
        pass
    null = os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor
    if null != number:
        os.dup2(null, number)
        os.close(null)
    if number:
        stream = open(number, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
        sys.stdout, sys.stderr = (stream, sys.stderr) if number == 1 else (sys.stdout, stream)
    else:
        sys.stdin = open(number, encoding="utf-8")  # noqa: SIM115
    return False


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    for line in "".join(traceback.format_exception(kind, error, trace)).splitlines():
        print(escape_line(line), file=sys.stderr)
