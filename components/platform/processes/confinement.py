"""Confines the calling process, and starts commands in confined processes. Imports little: scripts use it.

Landlock (Linux 5.13, needs no privileges, allowed in containers) denies writing outside of one directory, seccomp what
Landlock does not know, or not on older kernels. If the kernel has no Landlock, bubblewrap does the same if it is
installed. sandbox.py describes what each of them keeps.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import struct
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, NoReturn

Kind = Literal["landlock", "bubblewrap", "none"]

MAX_FILE_BYTES = 4 << 30
_DISCARDING_DEVICES = ("/dev/null", "/dev/full")
_LIBC = ctypes.CDLL(None, use_errno=True)

# linux/landlock.h: rights LANDLOCK_ACCESS_FS_* by the ABI that introduced them.
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
# Bits 4 to 12: remove and make directories, files, FIFOs, devices ...
_WRITE_RIGHTS = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
# 13: link or rename to another directory. 15: ioctl on devices.
_RIGHTS_BY_ABI = ((1, _WRITE_RIGHTS), (2, 1 << 13), (3, _TRUNCATE), (5, 1 << 15))
_TCP_RIGHTS, _TCP_ABI = 0b11, 4  # bind, connect
_SCOPE_RIGHTS, _SCOPES_ABI = 0b11, 6  # deny abstract UNIX sockets and signals to outside processes
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same number on every architecture
_VERSION, _PATH_BENEATH = 1, 1

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SIGKILL = 9
_SECCOMP_SET_MODE_FILTER, _SECCOMP_SPEC_ALLOW = 1, 4
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | 13  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO with EACCES
_UNKNOWN_CALL = 0x00050000 | 38  # with ENOSYS: libraries then use the older call, whose arguments a filter can read
_X32 = 0x40000000
_CAPABILITIES_V3, _KEPT_CAPABILITIES = 0x20080522, 1 << 1
"""CAP_DAC_OVERRIDE, by which root reads the files of others, such as a user's corpus in a container."""
_F_SETOWN, _F_SETOWN_EX = 8, 15
_CLONE_NEWUSER = 0x10000000
_O_TRUNC = 0o1000
_SET_FILE_FLAGS = (0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x40806685)
"""FS_IOC_SETFLAGS for both sizes of long, FSSETXATTR, SETVERSION, ENABLE_VERITY: by any descriptor of a file."""
_CHANGE_SUBVOLUMES = (0x50009401, 0x50009417, 0x5000940E, 0x50009418, 0x5000940F, 0x5000943F, 0x4008941A)
"""BTRFS_IOC_* that create, remove and change snapshots and subvolumes, which are directories."""

# machine: AUDIT_ARCH_*, and the numbers of system calls.
_NEW_NUMBERS = {"pidfd_send_signal": 424, "io_uring_setup": 425, "fchmodat2": 452, "setxattrat": 463}
_NEW_NUMBERS |= {"removexattrat": 466, "file_setattr": 469, "clone3": 435, "openat2": 437}
_ARCHITECTURES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {
            **{"seccomp": 317, "socket": 41, "truncate": 76, "setsid": 112, "setpgid": 109, "prlimit64": 302},
            **{"kill": 62, "tkill": 200, "tgkill": 234, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "fcntl": 72},
            **{"chmod": 90, "fchmod": 91, "fchmodat": 268, "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260},
            **{"utime": 132, "utimes": 235, "futimesat": 261, "utimensat": 280},
            **{"socketpair": 53, "open": 2, "openat": 257, "ioctl": 16, "clone": 56, "unshare": 272, "setns": 308},
            **{"setpriority": 141, "ioprio_set": 251, "sched_setparam": 142, "sched_setscheduler": 144},
            **{"sched_setaffinity": 203, "sched_setattr": 314, "add_key": 248, "request_key": 249, "keyctl": 250},
            **{"shmget": 29, "shmat": 30, "shmctl": 31, "semget": 64, "semop": 65, "semctl": 66, "semtimedop": 220},
            **{"msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "mq_open": 240, "mq_unlink": 241},
            **{"setxattr": 188, "lsetxattr": 189, "fsetxattr": 190},
            **{"removexattr": 197, "lremovexattr": 198, "fremovexattr": 199, **_NEW_NUMBERS},
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            **{"seccomp": 277, "socket": 198, "truncate": 45, "setsid": 157, "setpgid": 154, "prlimit64": 261},
            **{"kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "fcntl": 25},
            **{"fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "utimensat": 88},
            **{"socketpair": 199, "openat": 56, "ioctl": 29, "clone": 220, "unshare": 97, "setns": 268},
            **{"setpriority": 140, "ioprio_set": 30, "sched_setparam": 118, "sched_setscheduler": 119},
            **{"sched_setaffinity": 122, "sched_setattr": 274, "add_key": 217, "request_key": 218, "keyctl": 219},
            **{"shmget": 194, "shmat": 196, "shmctl": 195, "semget": 190, "semop": 193, "semctl": 191},
            **{"semtimedop": 192, "msgget": 186, "msgsnd": 189, "msgrcv": 188, "msgctl": 187},
            **{"mq_open": 180, "mq_unlink": 181},
            **{"setxattr": 5, "lsetxattr": 6, "fsetxattr": 7},
            **{"removexattr": 14, "lremovexattr": 15, "fremovexattr": 16, **_NEW_NUMBERS},
        },
    ),
}
_ATTRIBUTES = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
)
_SHARED = (
    *("shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl"),
    *("mq_open", "mq_unlink", "add_key", "request_key", "keyctl"),
)
"""Memory, semaphores, queues and keys that processes of a user share: they are no files, and outlive their maker."""


class Confinement(NamedTuple):
    """How a command is confined.

    Attributes:
        kind: by what; "none" for limits of time, memory and disk only.
        writable: the only directory below which it may write; "" for a command that is not confined at all.
        makes_programs: whether it may change modes of files, and write files of more than MAX_FILE_BYTES.
        daemons: whether it may make sessions and process groups, and signal its own processes.
        cpu_s: limit of the processor time of each of its processes; 0 for none.
        abi: the version of the kernel's Landlock.
    """

    kind: Kind = "none"
    writable: str = ""
    makes_programs: bool = False
    daemons: bool = False
    cpu_s: int = 0
    abi: int = 0


def landlock_abi() -> int:
    """Return the version of the kernel's Landlock. OSError if it has none."""
    return _call(_CREATE_RULESET, None, 0, _VERSION)


def has_seccomp() -> bool:
    """Return whether the system calls of this machine are known; on others only Landlock applies."""
    return os.uname().machine in _ARCHITECTURES


class Preparation(NamedTuple):
    """What the parent of a confined process prepares: in a forked copy, each page that Python touches costs a copy.

    Attributes:
        ruleset: a descriptor of a set of rules of Landlock, -1 for other kinds.
    """

    confinement: Confinement
    ruleset: int

    def close(self) -> None:
        """Close the descriptor."""
        if self.ruleset >= 0:
            os.close(self.ruleset)


def prepare(confinement: Confinement) -> Preparation:
    """Prepare to confine a process, which is forked after it. OSError if the kernel refuses it."""
    if confinement.kind != "landlock":
        return Preparation(confinement, -1)
    rights = sum(rights for since, rights in _RIGHTS_BY_ABI if confinement.abi >= since)
    tcp = _TCP_RIGHTS if confinement.abi >= _TCP_ABI else 0
    # Older kernels accept a longer struct that ends in zeros.
    attributes = struct.pack("=QQQ", rights, tcp, _SCOPE_RIGHTS if _has_scopes(confinement) else 0)
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        _allow_below(ruleset, confinement.writable, rights)
        for device in _DISCARDING_DEVICES:
            if os.path.exists(device):
                _allow_below(ruleset, device, rights & (_WRITE_FILE | _TRUNCATE))
        if _has_scopes(confinement):
            _filter(confinement.makes_programs, confinement.daemons, 0)  # keeps it
    except BaseException:
        os.close(ruleset)
        raise
    return Preparation(confinement, ruleset)


def execute(command: Sequence[str], environment: Mapping[str, str], prepared: Preparation, parent: int) -> NoReturn:
    """Confine this process, a fork of the process `parent` with which it ends, and execute a command in it.

    Raises:
        OSError: the kernel refuses what worked when sandbox.py tried it, or there is no such program.
    """
    confinement = prepared.confinement
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if os.getppid() != parent:
        os._exit(127)
    # A crashing compiler of 100 MB leaves large core files.
    _limit(resource.RLIMIT_CORE, 0)
    if confinement.cpu_s:
        _limit(resource.RLIMIT_CPU, confinement.cpu_s)
    if confinement.writable:
        if not confinement.makes_programs:
            _limit(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
        _end_first()
    if confinement.kind == "landlock":
        restrict(prepared)
    elif confinement.kind == "bubblewrap":
        command = [*bubblewrap_arguments(confinement, []), *command]
    os.execvpe(command[0], list(command), environment)


def restrict(prepared: Preparation) -> None:
    """Confine the calling thread, and all that it starts, by Landlock and seccomp."""
    confinement = prepared.confinement
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _call(_RESTRICT_SELF, prepared.ruleset, 0)
    _drop_capabilities()
    own = 0 if _has_scopes(confinement) else os.getpid()
    if (program := _filter(confinement.makes_programs, confinement.daemons, own)) is not None:
        instructions = ctypes.create_string_buffer(program, len(program))
        number = _ARCHITECTURES[os.uname().machine][1]["seccomp"]
        filter_program = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
        _call(number, _SECCOMP_SET_MODE_FILTER, _SECCOMP_SPEC_ALLOW, filter_program)


def _has_scopes(confinement: Confinement) -> bool:
    return confinement.abi >= _SCOPES_ABI


def _end_first() -> None:
    """Let the kernel end this process, not the training that waits for it, if memory runs out."""
    with contextlib.suppress(OSError):
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        try:
            os.write(descriptor, b"1000")
        finally:
            os.close(descriptor)


def bubblewrap_arguments(confinement: Confinement, descriptors: list[int]) -> list[str]:
    """Return the command prefix that confines the command appended to it.

    Args:
        descriptors: those that the command inherits are appended to it.
    """
    writable = confinement.writable
    # /dev first, because scratch directories are often in /dev/shm. The processes have a number space of their own,
    # which ends with its first process.
    words = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--bind", writable, writable, "--proc", "/proc"]
    words += ["--unshare-net", "--unshare-ipc", "--unshare-pid", "--die-with-parent"]
    if os.geteuid() == 0:
        words += ["--cap-drop", "ALL", "--cap-add", "CAP_DAC_OVERRIDE"]
    if (program := _filter(confinement.makes_programs, confinement.daemons, 0)) is not None:
        descriptors.append(descriptor := os.memfd_create("filter", 0))
        os.write(descriptor, program)
        os.lseek(descriptor, 0, os.SEEK_SET)
        words += ["--seccomp", str(descriptor)]
    return [*words, "--"]


@functools.lru_cache
def _filter(makes_programs: bool, daemons: bool, own: int) -> bytes | None:
    """Return the filter of system calls; None on an unknown architecture.

    It denies sockets, of which Landlock restricts only TCP, in pairs too, which send datagrams to any address;
    truncating by path or by a descriptor that cannot write, which compilers do not do and Landlock knows since Linux
    6.2; changing attributes of files, which Landlock does not know; objects that processes share and that are no files;
    user namespaces, which have all capabilities; leaving the process group, so that one signal ends all processes of a
    command; and limits and priorities of other processes.

    Args:
        makes_programs, daemons: see Confinement.
        own: the process ID of a command's first process, which may signal itself and its group, the others nothing; 0
            if signals to outside processes are denied by other means.
    """
    architecture = _ARCHITECTURES.get(os.uname().machine)
    if architecture is None:
        return None
    audit, numbers = architecture
    # Load from struct seccomp_data; bitwise and; jumps; return.
    load, bits, equal, not_below, ret = 0x20, 0x54, 0x15, 0x35, 0x06
    deny = (ret, 0, 0, _DENY)
    code = [
        (load, 0, 0, 4),  # the architecture: 32-bit programs have other system call numbers
        (equal, 1, 0, audit),
        deny,
        (load, 0, 0, 0),  # the system call
        (not_below, 0, 1, _X32),
        deny,
    ]

    def add(
        name: str,
        argument: int | None = None,
        allowed: Sequence[int] = (),
        denied: Sequence[int] = (),
        mask: int = 0,
        answer: int = _DENY,
    ) -> None:
        """Deny a system call, or only some values of an argument, or of its bits in `mask`."""
        if name not in numbers:
            return
        if argument is None:
            code.extend([(equal, 0, 1, numbers[name]), (ret, 0, 0, answer)])
            return
        values = allowed or denied
        # An allowed value jumps over the denial, a denied one to it.
        tests = [(equal, len(values) - i - (0 if allowed else 1), 0, value) for i, value in enumerate(values)]
        if not allowed:
            tests[-1] = (equal, 0, 1, values[-1])
        masked = [(bits, 0, 0, mask)] if mask else []
        block = [(load, 0, 0, 16 + 8 * argument), *masked, *tests, deny, (load, 0, 0, 0)]
        code.extend([(equal, 0, len(block), numbers[name]), *block])

    for name in ("socket", "socketpair", "truncate", "io_uring_setup", "setns", *_SHARED):  # io_uring opens sockets
        add(name)
    add("prlimit64", 0, allowed=(0,))
    for name in ("sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"):
        add(name, 0, allowed=(0,))
    for name, own_targets in (("setpriority", (0, 1)), ("ioprio_set", (1, 2))):  # a process and its group, no user
        add(name, 0, allowed=own_targets)
        add(name, 1, allowed=(0,))
    # O_RDONLY, and 3, which opens for neither reading nor writing.
    for name, flags in (("open", 1), ("openat", 2)):
        add(name, flags, denied=(_O_TRUNC, _O_TRUNC | 3), mask=_O_TRUNC | 3)
    for name in ("clone", "unshare"):
        add(name, 0, denied=(_CLONE_NEWUSER,), mask=_CLONE_NEWUSER)
    for name in ("openat2", "clone3"):
        add(name, answer=_UNKNOWN_CALL)
    add("file_setattr")
    add("ioctl", 1, denied=(*_SET_FILE_FLAGS, *_CHANGE_SUBVOLUMES))
    if not makes_programs:
        for name in _ATTRIBUTES:
            add(name)
    if not daemons:
        add("setsid")
        add("setpgid")
        if own:
            add("kill", 0, allowed=(0, own))
            add("tgkill", 0, allowed=(own,))
            for name in ("tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"):
                add(name)
            add("fcntl", 1, denied=(_F_SETOWN, _F_SETOWN_EX))
    code.append((ret, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _allow_below(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)


def _drop_capabilities() -> None:
    header = struct.pack("=Ii", _CAPABILITIES_V3, 0)
    data = ctypes.create_string_buffer(24)  # effective, permitted and inheritable, of two words each
    _require(_LIBC.capget(header, data))
    kept = struct.unpack("=6I", data.raw)[1] & _KEPT_CAPABILITIES
    _require(_LIBC.capset(header, struct.pack("=6I", kept, kept, 0, 0, 0, 0)))


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _prctl(option: int, value: int) -> None:
    _require(_LIBC.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))))


def _call(number: int, *arguments: int | bytes | None) -> int:
    """Make a system call that the C library has no function for. OSError if it fails."""
    converted = [ctypes.c_long(item) if isinstance(item, int) else ctypes.c_char_p(item) for item in arguments]
    return _require(_LIBC.syscall(ctypes.c_long(number), *converted))


def _require(result: int) -> int:
    """Return what a function of the C library has returned. OSError if it failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
