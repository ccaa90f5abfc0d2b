"""Peak memory of a compile."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from components.core.compiler.command_line import replay_arguments
from components.core.console import Progress, UserError
from components.core.formats.corpus import Module

Compiler = tuple[Path, Sequence[str]]
"""A clang, and flags to append to its command line."""

# The peak resident size of a process includes the time before exec. So the compiler is not started from this process,
# which has loaded TensorFlow, but from one that is smaller than any compiler.
_STARTER = """
import os, sys
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(status, usage.ru_maxrss)
"""


# The resident size also includes pages of the program next to those it reads, if the page cache has them: two files of
# equal content differ by 2 MB, depending on how they were written. In a memory file system all pages are present.
_MEMORY = Path("/dev/shm")


def peak_growth_kib(
    modules: Sequence[Module], baseline: Compiler, other: Compiler, repeats: int, output: Path
) -> float:
    """Return how much more peak memory, in KiB, a compile by `other` takes than one by `baseline`.

    That is the median over modules of the difference of the minima over `repeats` compiles; minima, because addresses
    and thus pages vary randomly.
    """
    growth = []
    with (
        Progress("measuring memory", len(modules)) as progress,
        tempfile.TemporaryDirectory(prefix="mlgo-bench-", dir=_MEMORY if _MEMORY.is_dir() else None) as copies,
    ):
        compilers: list[Compiler] = []
        for clang, flags in (baseline, other):
            copy = Path(copies) / f"clang-{len(compilers)}"
            shutil.copy2(clang, copy)
            compilers.append((copy, flags))
        for module in modules:
            peaks = [min(_peak_kib(*compiler, module, output) for _ in range(repeats)) for compiler in compilers]
            growth.append(peaks[1] - peaks[0])
            progress.advance()
    return statistics.median(growth)


def _peak_kib(clang: Path, flags: Sequence[str], module: Module, output: Path) -> int:
    arguments = replay_arguments(
        module.arguments(), module.bitcode, output, flags, module.thinlto_index, corpus=module.directory
    )
    command = [sys.executable, "-I", "-S", "-c", _STARTER, str(clang), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    status, peak_kib = map(int, done.stdout.split())
    if status != 0:
        raise UserError(f"{module.name} does not compile, status {status}: {done.stderr}", "compile it by hand")
    return peak_kib
