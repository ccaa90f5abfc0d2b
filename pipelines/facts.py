"""What a step's result depends on that its command line does not show."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path


def toolchain_facts(llvm_major: int) -> tuple[str, ...]:
    """The installed clang as it names itself, packaging revision included; empty if there is none (the step tells)."""
    clang = shutil.which(f"clang-{llvm_major}")
    if clang is None:
        return ()
    version = subprocess.run([clang, "--version"], capture_output=True, text=True, check=False, timeout=60)
    return (version.stdout.partition("\n")[0],)


def content_facts(path: Path) -> tuple[str, ...]:
    """The identity of what stands at `path`: a file by its content, a directory by its files' names, sizes and times.

    Times rather than content for directories: a user's build tree may hold gigabytes, and this runs at each start.
    """
    if path.is_file():
        return (hashlib.sha256(path.read_bytes()).hexdigest(),)
    total = hashlib.sha256()
    for folder, folders, files in os.walk(path):
        folders.sort()
        for name in sorted(files):
            status = os.lstat(os.path.join(folder, name))
            total.update(f"{os.path.relpath(folder, path)}/{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return (total.hexdigest(),)
