"""What a compile needs of memory."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from components.compiler.command_line import replay_arguments
from components.console import Progress, UserError
from components.formats.corpus import Module

# The most that a process had resident counts from before it became a compiler. So it is not started from here, where
# TensorFlow is loaded, but from a process that is smaller than any compiler.
_STARTER = """
import os, sys
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(status, usage.ru_maxrss)
"""


def peak_growth_kib(
    modules: Sequence[Module], plain: Path, other: Path, flags: Sequence[str], repeats: int, output: Path
) -> float:
    """Return by how much more memory, at its peak and in KiB, a compile by `other` with `flags` takes than by `plain`.

    Of each module and compiler the least of `repeats` compiles counts, for addresses and so pages differ by chance; of
    the modules' differences the median.
    """
    growth = []
    with Progress("measuring memory", len(modules)) as progress:
        for module in modules:
            peaks = [
                min(_peak_kib(clang, module, more, output) for _ in range(repeats))
                for clang, more in ((plain, ()), (other, flags))
            ]
            growth.append(peaks[1] - peaks[0])
            progress.advance()
    return statistics.median(growth)


def _peak_kib(clang: Path, module: Module, flags: Sequence[str], output: Path) -> int:
    arguments = replay_arguments(
        module.arguments(), module.bitcode, output, flags, module.thinlto_index, corpus=module.directory
    )
    command = [sys.executable, "-I", "-S", "-c", _STARTER, str(clang), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    status, peak_kib = map(int, done.stdout.split())
    if status != 0:
        raise UserError(f"{module.name} does not compile, status {status}: {done.stderr}", "compile it by hand")
    return peak_kib
