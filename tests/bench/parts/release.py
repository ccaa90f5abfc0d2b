"""Compile time overhead of an embedded policy: a release clang with the policy compared with the same clang without it.

The clang embeds the warmstart policy, which imitates the heuristic, so that both make the same decisions and the
difference is the cost of evaluating the policy, not of other code. Where the imitation differs, the code differs a
little, so the same figure is also measured over the modules whose objects are identical.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.core.compiler.advisor import Advisor
from components.core.compiler.replay.command_line import replay_arguments
from components.core.formats.corpus import Module, load_corpus
from components.core.formats.toolchain import load_toolchain
from components.platform.console import Progress
from components.platform.errors import UserError
from tests.bench.context import BenchContext

MODULES = 100
"""Number of modules to compile, spread over the corpus, so that a round of both takes well under a minute."""
ADVISORS = {"without": Advisor("default"), "with": Advisor("release")}


@dataclass(frozen=True)
class Compile:
    """One compile: user and system time of the compiler and wall time, in seconds, and the object's content."""

    cpu_s: float
    wall_s: float
    content: bytes


def measure(context: BenchContext) -> dict[str, float]:
    """(regalloc_)release_compile_overhead_percent: by CPU time; also by wall time, and over modules of equal code.

    Medians over the rounds, per module and clang, summed over the modules. The two clangs take turns in going first.
    """
    clang = _imitating_clang(context)
    everything = load_corpus(context.corpus).modules
    flags = {side: advisor.flags(context.problem, None, None) for side, advisor in ADVISORS.items()}
    modules = everything[:: max(1, len(everything) // MODULES)]
    times: dict[str, dict[str, list[Compile]]] = {module.name: {side: [] for side in ADVISORS} for module in modules}
    with Progress("compiling with and without the embedded policy", context.repeats * len(modules)) as progress:
        for turn in range(context.repeats):
            for number, module in enumerate(modules):
                order = list(ADVISORS)[:: 1 if (turn + number) % 2 else -1]
                for side in order:
                    times[module.name][side].append(_compile(clang, module, flags[side], context.scratch / "m.o"))
                progress.advance()
    alike = [name for name, sides in times.items() if sides["with"][0].content == sides["without"][0].content]
    figures = {
        context.key("release_compile_overhead_percent"): _overhead_percent(times, list(times), "cpu_s"),
        context.key("release_compile_overhead_wall_percent"): _overhead_percent(times, list(times), "wall_s"),
        context.key("release_compile_modules"): len(modules),
        context.key("release_compile_modules_alike"): len(alike),
    }
    if alike:
        figures[context.key("release_compile_overhead_alike_percent")] = _overhead_percent(times, alike, "cpu_s")
    return figures


def _imitating_clang(context: BenchContext) -> Path:
    """Build a release clang that embeds the warmstart policy of the run."""
    output = context.scratch / "release-warmstart"
    command = [
        sys.executable,
        "-m",
        "components.toolchain",
        "--mode",
        "release",
        "--policy",
        str(context.warmstart),
        "--output",
        str(output),
    ]
    if subprocess.run(command, check=False).returncode != 0:
        raise UserError("cannot build a release clang with the warmstart policy", "see the message above")
    return load_toolchain(output).clang


def _compile(clang: Path, module: Module, flags: Sequence[str], output: Path) -> Compile:
    argv = [str(clang), *replay_arguments(module.arguments(), module.bitcode, output, flags, module.thinlto_index)]
    started_s = time.perf_counter()
    child = os.posix_spawn(argv[0], argv, os.environ)
    _, status, usage = os.wait4(child, 0)
    wall_s = time.perf_counter() - started_s
    if status != 0:
        raise UserError(f"{module.name} does not compile, status {status}", "see the compiler's message above")
    return Compile(usage.ru_utime + usage.ru_stime, wall_s, output.read_bytes())


def _overhead_percent(times: dict[str, dict[str, list[Compile]]], names: list[str], field: str) -> float:
    def total_s(side: str) -> float:
        return sum(statistics.median(getattr(done, field) for done in times[name][side]) for name in names)

    return 100.0 * (total_s("with") / total_s("without") - 1.0)
