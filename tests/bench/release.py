"""What a policy costs its users: compile time of a release clang with the policy over the same clang without.

The clang embeds the warmstart policy, which imitates the heuristic, so that both sides decide the same and the
difference is the price of asking, not of other code. Where the imitation still differs, the code differs a little; the
same figure over the modules that came out alike byte for byte is given beside it.
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

from components.compiler.advisor import Advisor
from components.compiler.command_line import replay_arguments
from components.console import Progress, UserError
from components.formats.corpus import Module, load_corpus
from components.formats.toolchain import load_toolchain
from tests.bench.context import BenchContext

MODULES = 100
"""Modules compiled, spread over the corpus: a round of both sides then takes well under a minute."""
ADVISORS = {"without": Advisor("default"), "with": Advisor("release")}


@dataclass(frozen=True)
class Compile:
    """One compile: user and system time of the compiler, wall time (seconds), and the object's bytes."""

    cpu_s: float
    wall_s: float
    content: bytes


def measure(context: BenchContext) -> dict[str, float]:
    """(regalloc_)release_compile_overhead_percent: by CPU time; also by wall time, and over modules of equal code.

    Per module and side the median over the rounds, summed over the modules. The sides take turns in going first.
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
    """A release clang that embeds the warmstart policy of the run, made here."""
    output = context.scratch / "release-warmstart"
    command = [sys.executable, "-m", "components.toolchain", "--mode", "release",
               "--policy", str(context.warmstart), "--output", str(output)]  # fmt: skip
    if subprocess.run(command, check=False).returncode != 0:
        raise UserError("no release clang could be made of the warmstart policy", "see its message above")
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
