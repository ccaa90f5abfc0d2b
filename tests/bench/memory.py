"""Peak memory of a compile."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from components.core.compiler.replay.command_line import replay_arguments
from components.core.formats.corpus import Module
from components.platform.console import Progress
from components.platform.errors import UserError

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
    modules: Sequence[Module], baselines: Mapping[str, Compiler], other: Compiler, repeats: int, output: Path
) -> dict[str, float]:
    """Return, for each baseline, how much more peak memory, in KiB, a compile by `other` takes.

    That is the median over modules of the difference of the minima over `repeats` compiles; minima, because addresses
    and thus pages vary randomly.
    """
    growth: dict[str, list[int]] = {key: [] for key in baselines}
    with (
        Progress("measuring memory", len(modules)) as progress,
        tempfile.TemporaryDirectory(prefix="mlgo-bench-", dir=_MEMORY if _MEMORY.is_dir() else None) as directory,
    ):
        clangs = dict.fromkeys(clang for clang, _ in (other, *baselines.values()))
        copies = {clang: Path(shutil.copy2(clang, Path(directory) / str(index))) for index, clang in enumerate(clangs)}
        for module in modules:

            def peak_kib(compiler: Compiler, module: Module = module) -> int:
                clang, flags = compiler
                return min(_peak_kib(copies[clang], flags, module, output) for _ in range(repeats))

            peak = peak_kib(other)
            for key, baseline in baselines.items():
                growth[key].append(peak - peak_kib(baseline))
            progress.advance()
    return {key: statistics.median(differences) for key, differences in growth.items()}


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
