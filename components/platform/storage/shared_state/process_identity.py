"""Identifies the process that holds a root directory, and tells whether it still runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ProcessIdentity:
    """Identifies a process uniquely.

    Attributes:
        host: host name, for messages.
        pid: process ID in its namespace.
        boot: ID of the kernel's boot, the same in all containers of a machine.
        namespace: inode of the PID namespace.
        started: start time in clock ticks since boot (proc(5), /proc/PID/stat), because process IDs are reused.
    """

    host: str
    pid: int
    boot: str
    namespace: int
    started: int

    @classmethod
    def here(cls) -> ProcessIdentity:
        """Return the identity of this process."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        started = _started("self")
        assert started is not None
        return cls(socket.gethostname(), os.getpid(), boot, os.stat("/proc/self/ns/pid").st_ino, started)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ProcessIdentity | None:
        """Return the identity in a document of `to_json`, None for any other document."""
        try:
            host, boot = str(document["host"]), str(document["boot"])
            return cls(host, int(document["pid"]), boot, int(document["namespace"]), int(document["started"]))
        except (KeyError, TypeError, ValueError):
            return None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def is_running(self, seen_from: ProcessIdentity) -> bool | None:
        """Return whether the process still runs; None if `seen_from`, this process, cannot know."""
        if (self.boot, self.namespace) != (seen_from.boot, seen_from.namespace):
            return None
        started = _started(str(self.pid))
        return None if started is None and _is_hidden(self.pid) else started == self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _started(pid: str) -> int | None:
    """Return the start time of a process; None if it does not exist or is a zombie."""
    try:
        # The second field, in parentheses, is the program's name, which may contain any character.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _is_hidden(pid: int) -> bool:
    """Return whether a process exists although /proc does not show it, which its mount option hidepid may do."""
    if os.path.exists(f"/proc/{pid}"):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
