"""Runs build tools with their output in a log file, and stops them together with this process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from components.core.console.interrupts import uninterrupted

_GRACE_S = 5.0
_POLL_S = 0.1
_running: set[subprocess.Popen[str]] = set()
_stopped: set[subprocess.Popen[str]] = set()


class CommandStopped(Exception):
    """`stop_running` stopped the command, so its exit status is meaningless."""


def run_logged(
    command: list[str],
    cwd: Path,
    log: Path,
    environment: dict[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> int:
    """Run `command`, append its output to `log`, call `on_line` for each line, and return the exit status.

    On any exception in this process (such as Ctrl-C) the command gets SIGTERM, so that ninja stops the compilers, which
    it runs in separate process groups; after a grace period the whole session is killed. If this process is killed, the
    command ends at its next line of output, because nobody reads its pipe any more.

    Raises:
        CommandStopped: `stop_running` stopped the command.
    """
    variables = {**os.environ, "LC_ALL": "C", **(environment or {})}
    with open(log, "a", encoding="utf-8", errors="replace") as out:
        out.write(f"$ {' '.join(command)}\n")
        out.flush()
        process: subprocess.Popen[str] | None = None
        try:
            with uninterrupted():  # otherwise nobody would end the command
                process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                )
                _running.add(process)
            assert process.stdout is not None
            for line in process.stdout:
                out.write(line)
                if on_line is not None:
                    on_line(line)
            status = process.wait()
            if process in _stopped:
                raise CommandStopped(command[0])
            return status
        finally:
            if process is not None:
                _terminate_session(process)
                _running.discard(process)
                _stopped.discard(process)


def stop_running(futures: Iterable[Future[Any]]) -> None:
    """Cancel calls in other threads, and stop the commands that they run, which raises `CommandStopped` there.

    Returns when all calls have ended; commands that run after a grace period are killed. Needed because an interrupt
    raises an exception only in the main thread.
    """
    pending = set(futures)
    for future in pending:
        future.cancel()
    deadline_s = time.monotonic() + _GRACE_S
    while pending:  # again and again, because a call may be about to start its next command
        for process in tuple(_running - _stopped):
            _stopped.add(process)
            # The whole group, because children of a shell would continue and keep its output open.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        if time.monotonic() > deadline_s:
            for process in tuple(_running):
                _kill_session(process.pid)
        pending = wait(pending, timeout=_POLL_S).not_done


def log_tail(log: Path, lines: int = 12) -> str:
    """Return the most relevant part of a log in at most `lines` lines.

    That is CMake's last error, or else compiler errors and the end of the log.
    """
    try:
        text = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for index in range(len(text) - 1, -1, -1):
        if text[index].startswith("CMake Error"):  # the message is on the lines below
            return "\n".join(text[index : index + lines])
    errors = [line for line in text if "error:" in line]
    half = lines // 2
    return "\n".join(errors[-half:] + text[-half:] if errors else text[-lines:])


def _terminate_session(process: subprocess.Popen[str]) -> None:
    """Terminate the command and every process of its session.

    Build tools run each compiler in a separate process group, so killing only the command's group would leave the
    compilers running.
    """
    session = process.pid
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(session, signal.SIGTERM)
    deadline_s = time.monotonic() + _GRACE_S
    while _session_members(session) and time.monotonic() < deadline_s:
        process.poll()  # reaps it, so that it is no longer a member
        time.sleep(0.02)
    while _kill_session(session):
        process.poll()
        time.sleep(0.02)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _kill_session(session: int) -> bool:
    """Kill the processes of a session; return whether there were any."""
    members = _session_members(session)
    for member in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    return bool(members)


def _session_members(session: int) -> list[int]:
    """Return the living processes of a session, regardless of their process group and parent."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_bytes()
        except OSError:
            continue  # the process has just ended
        # pid (name) state parent group session ...; the name may contain anything, even parentheses: proc(5)
        state, _parent, _group, session_id = stat[stat.rindex(b")") + 2 :].split()[:4]
        if int(session_id) == session and state not in (b"Z", b"X"):
            found.append(int(entry))
    return found
