"""Runs a build tool with its output in a log file, stopped together with us."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_GRACE_S = 5.0
_running: set[subprocess.Popen[str]] = set()
_stopped: set[subprocess.Popen[str]] = set()


class Stopped(Exception):
    """A command was ended by `stop_running`, so its exit status says nothing."""


def run_logged(
    command: list[str],
    cwd: Path,
    log: Path,
    environment: dict[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> int:
    """Run `command`, append all it prints to `log`, call `on_line` for each line; returns its exit status.

    On any exception here (Ctrl-C) the command is asked to end, so that ninja ends the compilers that it runs in
    process groups of their own, and after a grace period its whole session is killed. If this process is
    killed outright, the command ends at its next line of output, because nobody reads it any more.
    """
    variables = {**os.environ, "LC_ALL": "C", **(environment or {})}
    with open(log, "a", encoding="utf-8", errors="replace") as out:
        out.write(f"$ {' '.join(command)}\n")
        out.flush()
        process = subprocess.Popen(
            command, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        _running.add(process)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                out.write(line)
                if on_line is not None:
                    on_line(line)
            status = process.wait()
            if process in _stopped:
                raise Stopped(command[0])
            return status
        finally:
            _end(process)
            _running.discard(process)
            _stopped.discard(process)


def stop_running() -> None:
    """End what other threads run, which raises `Stopped` there: an exception reaches only the main thread by itself."""
    for process in tuple(_running):
        _stopped.add(process)
        # The whole group: a shell's own children would go on, and keep its output open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def log_tail(log: Path, lines: int = 12) -> str:
    """What a log's reader would look for, in at most `lines` lines: CMake's last error, compilers' errors, the end."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for index in range(len(text) - 1, -1, -1):
        if text[index].startswith("CMake Error"):  # its words are on the lines below
            return "\n".join(text[index : index + lines])
    errors = [line for line in text if "error:" in line]
    half = lines // 2
    return "\n".join(errors[-half:] + text[-half:] if errors else text[-lines:])


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the command and every process of its session: build tools give each compiler a process group of its own,
    so that killing the command's group alone would leave the compilers behind."""
    session = process.pid
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(session, signal.SIGTERM)
    deadline_s = time.monotonic() + _GRACE_S
    while _members(session) and time.monotonic() < deadline_s:
        process.poll()  # reaped, it is no member any more
        time.sleep(0.02)
    while members := _members(session):
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        process.poll()
        time.sleep(0.02)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _members(session: int) -> list[int]:
    """The living processes of a session, whatever their process group and whoever adopted them."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_bytes()
        except OSError:
            continue  # it has just ended
        # pid (name) state parent group session ...; the name may hold anything, parentheses too: proc(5)
        state, _parent, _group, of = stat[stat.rindex(b")") + 2 :].split()[:4]
        if int(of) == session and state not in (b"Z", b"X"):
            found.append(int(entry))
    return found
