"""Runs build tools with their output in a log file, and stops them together with this process."""

from __future__ import annotations

import os
import re
import shlex
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from components.platform.console import say
from components.platform.console.interrupts import delay_interrupts
from components.platform.processes.process_tree import ProcessTree, describe_left
from components.platform.processes.reaper import environment_without_secrets

_POLL_S = 0.1
_MAX_SHOWN = 60
_MAX_END_BYTES = 1 << 20
_CONSEQUENCE = r"^collect2: error: |linker command failed|^dh_\w+: error: "
_CAUSES = tuple(
    re.compile(pattern)
    for pattern in (
        r"No space left on device|Disk quota exceeded",
        r"^configure: error: |^CMake Error|^\S*meson\.build:\d+:\d+: ERROR: ",
        r"fatal error: .*(?:No such file or directory|file not found)|cannot find -l|unable to find library -l"
        r"|undefined reference to |undefined symbol: |No rule to make target|^ModuleNotFoundError: ",
        r"^(?:FAIL|XPASS|ERROR): (?!\d+$)|^not ok (?!.*# (?:TODO|SKIP))|^\[  FAILED  \] ",
        rf"^(?!# |.*(?:{_CONSEQUENCE})).*(?:\b(?i:error): |^\w+Error: )",
        r"No such file or directory|Permission denied|^\S*sh: .*: not found|command not found",
        rf"\*\*\* \[|^FAILED: |{_CONSEQUENCE}",
    )
)
"""Lines that say why a build failed, the most telling first."""
_COMMAND = "$ "
"""Start of a line of the log with a command that runs."""
_DUMP_START = re.compile(r"==> .* <==$|This file contains any messages produced by compilers while")
_DUMP_END = re.compile(r"configure: exit \d|dh_\w+: error: ")
"""Ends of config.log, which has the errors of all checks, and of the files that debhelper prints by tail -v."""
_running: set[ProcessTree] = set()
_stopped: set[ProcessTree] = set()


class CommandTimeout(Exception):
    """The command exceeded its time limit, and was stopped with all its descendants."""


class CommandStopped(Exception):
    """`stop_running` stopped the command, so its exit status is meaningless."""


def run_logged(
    command: list[str],
    cwd: Path,
    log: Path,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    timeout_s: float | None = None,
    of_user: bool = False,
) -> int:
    """Run `command`, append its output to `log`, call `on_line` for each line, and return the exit status.

    The call returns when all descendants of the command have ended, too. Those that run on after the command are
    stopped after two seconds, with a message to the log and the user: they would hold the log's pipe open, and work in
    directories that are removed. On any exception in this process (such as Ctrl-C), and if it is killed, all of them
    get SIGTERM, after a grace period SIGKILL.

    Args:
        environment: variables besides those of this process; the command gets no secrets of this process.
        of_user: whether it is the user's own command, which gets the user's whole environment.

    Raises:
        CommandStopped: `stop_running` stopped the command.
        CommandTimeout: the command exceeded `timeout_s`.
        FileNotFoundError: there is no such program.
    """
    inherited = os.environ if of_user else environment_without_secrets()
    variables = {**inherited, "LC_ALL": "C", **(environment or {})}
    with open(log, "a", buffering=1, encoding="utf-8", errors="replace") as out:  # users follow it
        out.write(f"{_COMMAND}{' '.join(command)}\n")
        out.flush()
        tree: ProcessTree | None = None
        timer: threading.Timer | None = None
        expired = threading.Event()
        try:
            with delay_interrupts():  # otherwise nobody would end the command
                tree = ProcessTree(command, cwd, variables)
                _running.add(tree)
            if timeout_s is not None:
                timer = threading.Timer(timeout_s, _expire, (expired, tree))
                timer.start()
            for line in tree.lines():
                out.write(line)
                if on_line is not None:
                    on_line(line)
            status = tree.wait()
            if tree in _stopped:
                raise CommandStopped(command[0])
            if expired.is_set():
                out.write(f"stopped after {timeout_s:g} s\n")
                raise CommandTimeout(command[0])
            if left := tree.left_running():
                words = shlex.join(command)
                message = describe_left(words if len(words) <= _MAX_SHOWN else f"{words[:_MAX_SHOWN]}…", left)
                out.write(f"{message}\n")
                say(f"{message} ({log})")
            return status
        finally:
            if timer is not None:
                timer.cancel()
            if tree is not None:
                tree.close()
                _running.discard(tree)
                _stopped.discard(tree)


def _expire(expired: threading.Event, tree: ProcessTree) -> None:
    expired.set()
    tree.terminate()


def stop_running(futures: Iterable[Future[Any]]) -> None:
    """Cancel calls in other threads, and stop the commands that they run, which raises `CommandStopped` there.

    Returns when all calls have ended. Needed because an interrupt raises an exception only in the main thread.
    """
    pending = set(futures)
    for future in pending:
        future.cancel()
    while pending:  # again and again, because a call may be about to start its next command
        for tree in tuple(_running - _stopped):
            _stopped.add(tree)
            tree.terminate()
        pending = wait(pending, timeout=_POLL_S).not_done


def log_tail(log: Path, lines: int = 12) -> str:
    """Return the most relevant part of a log, see `output_tail`; "" if there is none."""
    try:
        return output_tail(read_end(log), lines)
    except OSError:
        return ""


def read_end(log: Path) -> str:
    """Return the end of a log. Some builds print millions of lines, of which the last ones say why they fail."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _MAX_END_BYTES))
        return stream.read().decode(errors="replace")


def output_tail(output: str, lines: int = 12) -> str:
    """Return the most relevant part of a command's output in at most `lines` lines.

    That is CMake's last error, or else the lines that say the cause and the end of the output.
    """
    text = _without_dumps(output[-_MAX_END_BYTES:].splitlines())
    for index in range(len(text) - 1, -1, -1):
        if text[index].startswith("CMake Error"):  # the message is on the lines below
            return "\n".join(text[index : index + lines])
    shown = set(find_causes(text)[-(lines // 2) :])
    for index in range(len(text) - 1, -1, -1):
        if len(shown) < lines:
            shown.add(index)
    return "\n".join(text[index] for index in sorted(shown))


def find_causes(text: Sequence[str]) -> list[int]:
    """Return the indices of the lines of a build's output that tell most about its failure; none if it says nothing."""
    outputs = [(index, line) for index, line in enumerate(text) if not line.startswith(_COMMAND)]
    for pattern in _CAUSES:
        if found := [index for index, line in outputs if pattern.search(line)]:
            return found
    return []


def _without_dumps(text: Sequence[str]) -> list[str]:
    """Return the lines of a log without those of other logs that a build prints into it."""
    kept: list[str] = []
    dumped: list[str] = []
    inside = False
    for line in text:
        if inside and _DUMP_END.match(line):
            inside, dumped = False, []
        elif _DUMP_START.match(line):
            inside = True
        (dumped if inside else kept).append(line)
    return kept + dumped
