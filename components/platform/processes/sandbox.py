"""Confines child processes: they write only below one directory and have no network.

Bitcode and command lines may be untrusted, and LLVM does not claim that reading bitcode is safe. Landlock (Linux 5.13,
needs no privileges, allowed in containers) denies writing, seccomp denies sockets. Both apply to the calling thread and
to the processes that it starts, so each child is started by a short-lived thread. This process itself stays unconfined,
and a child costs 0.7 ms more processor time. If the kernel has no Landlock, bubblewrap does the same if it is
installed, for about 5 ms. Reading is not confined, because the libraries of compilers may be installed anywhere.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from components.platform.console import say
from components.platform.errors import UserError

T = TypeVar("T")
Kind = Literal["landlock", "bubblewrap", "none"]

SANDBOX_VARIABLE = "MLGO_COMPILE_SANDBOX"
"""Environment variable: landlock, bubblewrap, or none for unconfined compiles. Default: the first one that works."""
_KINDS: tuple[Kind, ...] = ("landlock", "bubblewrap", "none")
_UNSUPPORTED_ERRORS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EACCES, errno.EINVAL)
"""Errors of a kernel or container without Landlock. Other errors, such as too many open files, must be reported."""
_DISCARDING_DEVICES = ("/dev/null", "/dev/full")
_LIBC = ctypes.CDLL(None, use_errno=True)

# linux/landlock.h: rights LANDLOCK_ACCESS_FS_* by the ABI that introduced them.
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
# Bits 4 to 12: remove and make directories, files, FIFOs, devices ...
_WRITE_RIGHTS = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
_WRITE_RIGHTS_BY_ABI = ((1, _WRITE_RIGHTS), (2, 1 << 13), (3, _TRUNCATE))  # 13: link or rename to another directory
_TCP_RIGHTS, _TCP_ABI = 0b11, 4  # bind, connect
_SCOPE_RIGHTS, _SCOPES_ABI = 0b11, 6  # deny abstract UNIX sockets and signals to outside processes
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same number on every architecture
_VERSION, _PATH_BENEATH = 1, 1

_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_SET_MODE_FILTER, _SECCOMP_SPEC_ALLOW = 1, 4
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | 13  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO with EACCES
_IO_URING_SETUP = 425
_X32 = 0x40000000
# machine: AUDIT_ARCH_*, and the system call numbers of seccomp, socket and truncate.
_ARCHITECTURES = {"x86_64": (0xC000003E, 317, 41, 76), "aarch64": (0xC00000B7, 277, 198, 45)}


def kind() -> Kind:
    """Return how children are confined on this machine; print a warning once if they are not confined.

    Raises:
        UserError: $MLGO_COMPILE_SANDBOX names a kind that is unknown or does not work here.
    """
    with _LOCK:
        return _kind(os.environ.get(SANDBOX_VARIABLE, ""))


def start_command(
    argv: Sequence[str],
    writable: Path | None,
    start: Callable[[Sequence[str]], T],
    undo: Callable[[T], object] = lambda _: None,
) -> T:
    """Call `start` with a command, confined as this machine can; the kind bubblewrap prefixes the command.

    Args:
        writable: the only directory below which the command may write; None for no confinement.
        undo: see `start_confined`.
    """
    confined = "none" if writable is None else kind()
    if writable is not None and confined == "landlock":
        return start_confined(writable, lambda: start(argv), undo)
    if writable is not None and confined == "bubblewrap":
        argv = [*bubblewrap_arguments(writable), *argv]
    return start(argv)


def start_confined(writable: Path, start: Callable[[], T], undo: Callable[[T], object] = lambda _: None) -> T:
    """Call `start` in a thread whose children can write only below `writable` and have no network.

    Args:
        undo: called with the result of `start` if the calling thread was interrupted in the meantime.

    Raises:
        OSError: the kernel refuses what worked when `kind` tried it.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            _restrict_thread(writable)
            done.append(start())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="start confined")
    thread.start()
    try:
        thread.join()
    except BaseException:
        thread.join()
        for result in done:
            undo(result)
        raise
    if failed:
        raise failed[0]
    return done[0]


def bubblewrap_arguments(writable: Path) -> list[str]:
    """Return the command prefix that confines the command appended to it."""
    # /dev first, because scratch directories are often in /dev/shm.
    return [
        "bwrap",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--bind",
        str(writable),
        str(writable),
        "--unshare-net",
        "--unshare-ipc",
        "--",
    ]


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
                return name
            problems.append(problem)
    if requested:
        raise UserError(f"{SANDBOX_VARIABLE}={requested}: {problems[0]}", "unset it to use the kind that works here")
    say(
        f"compiles are not confined ({'; '.join(problems)}): an untrusted corpus could write files and use the "
        "network, see docs/security.md"
    )
    return "none"


def _landlock_problem() -> str | None:
    """Return why Landlock cannot be used here, None if it can."""
    try:
        start_confined(Path(os.sep), lambda: None)
    except OSError as error:
        if error.errno not in _UNSUPPORTED_ERRORS:
            raise
        return f"no Landlock: {error.strerror}"
    return None


def _bubblewrap_problem() -> str | None:
    """Return why bubblewrap cannot be used here, None if it can."""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed"
    with tempfile.TemporaryDirectory(prefix="mlgo-sandbox-") as directory:
        command = [program, *bubblewrap_arguments(Path(directory))[1:], "/bin/sh", "-c", ":"]
        try:
            # Not by supervision.py, which needs the result of this probe for every child.
            completed = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap: {error}"
    return None if completed.returncode == 0 else f"bubblewrap: {completed.stderr}"


def _restrict_thread(writable: Path) -> None:
    abi = _call(_CREATE_RULESET, None, 0, _VERSION)
    write_rights = sum(rights for since, rights in _WRITE_RIGHTS_BY_ABI if abi >= since)
    tcp, scopes = _TCP_RIGHTS if abi >= _TCP_ABI else 0, _SCOPE_RIGHTS if abi >= _SCOPES_ABI else 0
    # Older kernels accept a longer struct that ends in zeros.
    attributes = struct.pack("=QQQ", write_rights, tcp, scopes)
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        _allow_below(ruleset, str(writable), write_rights)
        for device in _DISCARDING_DEVICES:
            if os.path.exists(device):
                _allow_below(ruleset, device, write_rights & (_WRITE_FILE | _TRUNCATE))
        if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    _deny_system_calls()


def _allow_below(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)


def _deny_system_calls() -> None:
    """Deny sockets and truncate(2) by seccomp: Landlock restricts only TCP, and only since Linux 6.7, and truncating by
    path only since 6.2. Compilers truncate what they have open.

    On an unknown architecture only Landlock applies.
    """
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        return
    audit, seccomp, socket, truncate = architecture
    load, equal, not_below, ret = 0x20, 0x15, 0x35, 0x06  # load from struct seccomp_data; jumps; return
    code = [
        (load, 0, 0, 4),  # the architecture: 32-bit programs have other system call numbers
        (equal, 0, 5, audit),
        (load, 0, 0, 0),  # the system call
        (not_below, 3, 0, _X32),
        (equal, 2, 0, socket),
        (equal, 1, 0, truncate),
        (equal, 0, 1, _IO_URING_SETUP),  # it could also open sockets
        (ret, 0, 0, _DENY),
        (ret, 0, 0, _ALLOW),
    ]
    program = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
    instructions = ctypes.create_string_buffer(program, len(program))
    _call(
        seccomp,
        _SECCOMP_SET_MODE_FILTER,
        _SECCOMP_SPEC_ALLOW,
        struct.pack("@HP", len(code), ctypes.addressof(instructions)),
    )


def _call(number: int, *arguments: int | bytes | None) -> int:
    """Make a system call that the C library has no function for. OSError if it fails."""
    converted = [ctypes.c_long(item) if isinstance(item, int) else ctypes.c_char_p(item) for item in arguments]
    result = int(_LIBC.syscall(ctypes.c_long(number), *converted))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
