"""What child processes with untrusted input may do, and what keeps it on this machine.

Bitcode and command lines may be untrusted, and LLVM does not claim that reading bitcode is safe. confinement.py
confines the processes that read them: by Landlock and seccomp, or by bubblewrap where there is no Landlock. Reading is
not confined, because the libraries of compilers may be installed anywhere.
"""

from __future__ import annotations

import errno
import functools
import math
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.processes.cgroup import available_processors
from components.platform.processes.confinement import (
    Confinement,
    Kind,
    bubblewrap_arguments,
    has_seccomp,
    landlock_abi,
    prepare,
    restrict,
)

SANDBOX_VARIABLE = "MLGO_COMPILE_SANDBOX"
"""Environment variable: landlock, bubblewrap, or none for unconfined compiles. Default: the first one that works."""
_KINDS: tuple[Kind, ...] = ("landlock", "bubblewrap", "none")
_UNSUPPORTED_ERRORS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EACCES, errno.EINVAL)
"""Errors of a kernel or container without Landlock. Other errors, such as too many open files, must be reported."""


@dataclass(frozen=True)
class Rule:
    """A promise about a confined command, with all processes that it starts.

    Attributes:
        subject: what it is about.
        promise: what the command can do at most.
        unless_kept: what it could do otherwise.
        landlock: the version of Landlock that keeps it alone; None if none does.
        seccomp: whether our filter of system calls keeps it, with any version of Landlock, and with bubblewrap.
        bubblewrap: whether bubblewrap keeps it alone.
        always: whether it is kept without Landlock and bubblewrap, too.
    """

    subject: str
    promise: str
    unless_kept: str
    landlock: int | None = None
    seccomp: bool = False
    bubblewrap: bool = True
    always: bool = False

    def kept_by(self, kind: Kind, abi: int, seccomp: bool) -> bool:
        """Return whether the promise is kept by a kind of sandbox, with Landlock of the version `abi`."""
        if self.always or (self.seccomp and seccomp and kind != "none"):
            return True
        if kind == "landlock":
            return self.landlock is not None and abi >= self.landlock
        return kind == "bubblewrap" and self.bubblewrap


RULES = (
    Rule(
        "files",
        "creates, writes, truncates, renames and removes files only in its scratch directory",
        "truncate files",
        landlock=3,
        seccomp=True,
    ),
    Rule(
        "attributes",
        "changes no mode, owner, time or extended attribute of a file (a link may)",
        "change modes and times of files",
        seccomp=True,
    ),
    Rule("network", "makes no socket, of the network or of UNIX", "use the network", seccomp=True, bubblewrap=False),
    Rule("signals", "signals only its own processes, and limits no others", "end your processes", seccomp=True),
    # Landlock knows neither memory that processes share by a number, nor user namespaces.
    Rule("other processes", "reads and changes neither memory nor environment of them", "read them", seccomp=True),
    Rule(
        "capabilities",
        "has none, as root only CAP_DAC_OVERRIDE",
        "make user namespaces",
        seccomp=True,
        bubblewrap=False,
    ),
    Rule("environment", "has only the variables that compilers need", "read it", always=True),
    Rule("processes", "all end with it, those in other sessions, too", "leave some running", always=True),
    Rule("time", "ends at its time limit, each process after that times the processors", "run on", always=True),
    Rule("memory", "is ended first if memory runs out, but has no limit", "take all of it", always=True),
    Rule("disk", "writes at most 4 GiB into a file (a link more), but as many as fit", "fill it", always=True),
)


def kind() -> Kind:
    """Return how children are confined on this machine; say once what a corpus from elsewhere could do nevertheless.

    Raises:
        UserError: $MLGO_COMPILE_SANDBOX names a kind that is unknown or does not work here.
    """
    with _LOCK:
        return _kind(os.environ.get(SANDBOX_VARIABLE, ""))


def confinement(writable: Path, timeout_s: float, makes_programs: bool = False, daemons: bool = False) -> Confinement:
    """Return how this machine confines a command.

    Args:
        writable: the only directory below which the command may write.
        timeout_s: its time limit.
        makes_programs, daemons: see Confinement.
    """
    cpu_s = math.ceil(timeout_s * available_processors()) + 1
    chosen = kind()
    abi = landlock_abi() if chosen == "landlock" else 0
    return Confinement(chosen, os.path.abspath(writable), makes_programs, daemons, cpu_s, abi)


_LOCK = threading.Lock()


@functools.cache
def _kind(requested: str) -> Kind:
    if requested not in ("", *_KINDS):
        raise UserError(
            f"{SANDBOX_VARIABLE}={requested} is unknown", f"set it to one of {', '.join(_KINDS)}, or unset it"
        )
    if requested == "none":
        return "none"
    probes: dict[Kind, Callable[[], str | None]]
    probes = {"landlock": _landlock_problem, "bubblewrap": _bubblewrap_problem}
    problems = []
    for name, find_problem in probes.items():
        if requested in ("", name):
            problem = find_problem()
            if problem is None:
                if missing := _missing(name):
                    say(f"compiles are confined by {name}, but could {missing}: see docs/security.md")
                return name
            problems.append(problem)
    if requested:
        raise UserError(f"{SANDBOX_VARIABLE}={requested}: {problems[0]}", "unset it to use the kind that works here")
    say(
        f"compiles are not confined ({'; '.join(problems)}): an untrusted corpus could write files and use the "
        "network, see docs/security.md"
    )
    return "none"


def _missing(name: Kind) -> str:
    """Return what a command could do against the rules, where the kernel or the processor lacks something."""
    abi = landlock_abi() if name == "landlock" else 0
    return ", ".join(rule.unless_kept for rule in RULES if not rule.kept_by(name, abi, has_seccomp()))


def _landlock_problem() -> str | None:
    """Return why Landlock cannot be used here, None if it can."""
    failed: list[OSError] = []

    def attempt() -> None:
        try:
            prepared = prepare(Confinement("landlock", os.sep, abi=landlock_abi()))
            try:
                restrict(prepared)
            finally:
                prepared.close()
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=attempt, name="probe Landlock")  # it confines only itself, and ends
    thread.start()
    thread.join()
    if failed and failed[0].errno not in _UNSUPPORTED_ERRORS:
        raise failed[0]
    return f"no Landlock: {failed[0].strerror}" if failed else None


def _bubblewrap_problem() -> str | None:
    """Return why bubblewrap cannot be used here, None if it can."""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed"
    with tempfile.TemporaryDirectory(prefix="mlgo-sandbox-") as directory:
        descriptors: list[int] = []
        words = bubblewrap_arguments(Confinement("bubblewrap", directory), descriptors)
        try:
            # Not by supervision.py, which needs the result of this probe for every child.
            command = [program, *words[1:], "/bin/sh", "-c", ":"]
            completed = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=10, pass_fds=descriptors
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap: {error}"
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
    return None if completed.returncode == 0 else f"bubblewrap: {completed.stderr}"
