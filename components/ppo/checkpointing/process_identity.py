"""Who holds a root directory, and whether that process still lives, as far as can be told from here."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ProcessIdentity:
    """A process, told apart from every other one.

    host: its name, for messages. boot: of the kernel, the same in all containers of a machine until it is started anew.
    namespace: the inode of the namespace that `pid` is a number in. started: when, in clock ticks since that boot
    (proc(5), /proc/PID/stat), for numbers are given again.
    """

    host: str
    pid: int
    boot: str
    namespace: int
    started: int

    @classmethod
    def here(cls) -> ProcessIdentity:
        """This process."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        started = _started("self")
        assert started is not None
        return cls(socket.gethostname(), os.getpid(), boot, os.stat("/proc/self/ns/pid").st_ino, started)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ProcessIdentity | None:
        """The reverse of `to_json`; None for anything else."""
        try:
            host, boot = str(document["host"]), str(document["boot"])
            return cls(host, int(document["pid"]), boot, int(document["namespace"]), int(document["started"]))
        except (KeyError, TypeError, ValueError):
            return None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lives(self, seen_from: ProcessIdentity) -> bool | None:
        """Whether that process still runs; None where `seen_from`, this process, cannot know."""
        if (self.boot, self.namespace) != (seen_from.boot, seen_from.namespace):
            return None
        return _started(str(self.pid)) == self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _started(pid: str) -> int | None:
    """None if there is no such process, or it is a zombie."""
    try:
        # The second field, in parentheses, is the program's name, which may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
