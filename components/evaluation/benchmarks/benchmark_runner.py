"""Runs the benchmarks of a project that has been built, each in a folder of its own, and counts what they execute."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from components.core.console import Progress, UserError
from components.core.processes import supervision
from components.core.projects.benchmark import Benchmark, make_input
from components.core.projects.build import BuiltProject
from components.core.projects.recipe import Recipe
from components.evaluation.benchmarks.counters import Count, Counter
from components.evaluation.projects.section_sizes import measure

TIMEOUT_S = 1800.0
"""Of one run: about half a minute without a counter."""
INPUT = "input"
OUTPUT = "output"
STDOUT = "stdout"
_KILL_INTERVAL_S = 0.1


@dataclass(frozen=True)
class Run:
    """What came of a benchmark.

    program: its path relative to the build directory; text_bytes: its machine code, section .text and its like. stdout,
    output: SHA-256 of what it printed, and of what it wrote to {output} ("" if the benchmark names no such file).
    """

    program: str
    text_bytes: int
    count: Count
    stdout: str
    output: str


def run_benchmarks(
    recipe: Recipe, built: BuiltProject, source: Path, folder: Path, title: str, counter: Counter, jobs: int
) -> list[Run]:
    """Runs all benchmarks of `recipe`, in their order.

    Args:
        folder: where `make_inputs` was called, and the other build's runs were: its outputs are inputs of this one's.
        title: of the compiler, for progress and errors.
        jobs: runs at a time, if the counter allows more than one.

    Raises:
        UserError: a program is not there, fails, writes nothing to {output}, or takes longer than TIMEOUT_S.
    """
    programs = [_program(recipe, benchmark, built) for benchmark in recipe.benchmarks]
    stopped = threading.Event()
    done: dict[str, Future[Run]] = {}
    workers = jobs if counter.parallel else 1
    with (
        Progress(f"running {recipe.name} built by {title} ({counter.name})", len(programs)) as progress,
        ThreadPoolExecutor(workers) as executor,
    ):

        def work(benchmark: Benchmark, program: Path) -> Run:
            wanted = benchmark.input
            if wanted is not None and wanted.output_of:
                done[wanted.output_of].result()  # began before this one: threads take what was submitted first
            run = _run(recipe, benchmark, program, built, source, folder, title, counter, stopped)
            progress.advance()
            return run

        try:
            for benchmark, program in zip(recipe.benchmarks, programs, strict=True):
                done[benchmark.name] = executor.submit(work, benchmark, program)
            return [done[benchmark.name].result() for benchmark in recipe.benchmarks]
        except BaseException:
            stopped.set()
            _stop(set(done.values()), executor)
            raise


def make_inputs(recipe: Recipe, source: Path, folder: Path) -> None:
    """Makes a folder for each benchmark, with its input file, out of a source tree in which nothing was built yet.

    Files that are there stay: both builds read the same. Raises `UserError` if the source has none of the files.
    """
    for benchmark in recipe.benchmarks:
        path = folder / benchmark.name / INPUT
        path.parent.mkdir(parents=True, exist_ok=True)
        if benchmark.input is not None and not benchmark.input.output_of and not path.exists():
            make_input(benchmark.input, source, path)


def _stop(futures: set[Future[Run]], executor: ThreadPoolExecutor) -> None:
    executor.shutdown(wait=False, cancel_futures=True)
    left = {future for future in futures if not future.done()}
    while left:
        # Again and again: a thread may just be starting a program.
        supervision.kill_running()
        left = wait(left, timeout=_KILL_INTERVAL_S).not_done


def _program(recipe: Recipe, benchmark: Benchmark, built: BuiltProject) -> Path:
    found = sorted({path.resolve() for path in built.directory.glob(benchmark.program) if path.is_file()})
    if len(found) != 1 or not found[0].is_relative_to(built.directory.resolve()):
        names = ", ".join(path.name for path in found) or "nothing"
        raise UserError(
            f"{recipe.name}: benchmark {benchmark.name} wants one program, and {benchmark.program} matches {names}",
            f"correct program in the recipe ({built.log} tells what the build made)",
        )
    return found[0]


def _run(
    recipe: Recipe,
    benchmark: Benchmark,
    program: Path,
    built: BuiltProject,
    source: Path,
    folder: Path,
    title: str,
    counter: Counter,
    stopped: threading.Event,
) -> Run:
    where = f"{recipe.name}: benchmark {benchmark.name}, built by {title},"
    text_bytes = measure(program).sizes.text
    place = (folder / benchmark.name).absolute()
    if benchmark.input is not None and benchmark.input.output_of and not (place / INPUT).exists():
        shutil.copyfile(place.parent / benchmark.input.output_of / OUTPUT, place / INPUT)
    # Relative names: what the arguments say, and so what the program executes, is the same wherever it runs.
    names = {"{input}": INPUT, "{output}": OUTPUT, "{source}": os.path.relpath(source, place.resolve())}
    arguments = [os.path.relpath(program, place.resolve())]
    for argument in benchmark.arguments:
        for placeholder, name in names.items():
            argument = argument.replace(placeholder, name)
        arguments.append(argument)
    figures = place / "figures"
    counts = []
    for _ in range(counter.repeats):
        for name in (OUTPUT, figures.name):
            (place / name).unlink(missing_ok=True)
        if stopped.is_set():
            raise supervision.ProcessKilled(str(program))
        # Its environment, too, decides what a program executes.
        command = ["/usr/bin/env", "-i", "LC_ALL=C", "PATH=/usr/bin:/bin", *counter.command(figures), *arguments]
        _execute(where, command, place, place / INPUT if benchmark.stdin else None)
        counts.append(counter.read(figures))
    output = place / OUTPUT
    if benchmark.writes_output and not output.is_file():
        raise UserError(f"{where} wrote nothing to its output", "correct its arguments in the recipe")
    return Run(
        str(program.relative_to(built.directory.resolve())),
        text_bytes,
        _least(counts),
        _sha256(place / STDOUT),
        _sha256(output) if benchmark.writes_output else "",
    )


def _execute(where: str, command: list[str], place: Path, stdin: Path | None) -> None:
    try:
        with open(place / STDOUT, "wb") as stdout:
            done = supervision.run(command, TIMEOUT_S, stdout.fileno(), place, stdin)
    except supervision.ProcessTimeout:
        raise UserError(f"{where} did not end within {TIMEOUT_S:.0f} s", "make it smaller in the recipe") from None
    if done.returncode != 0:
        how = f"has status {done.returncode}" if done.returncode > 0 else f"ended by signal {-done.returncode}"
        said = f"; it said:\n{done.stderr[-1000:]}" if done.stderr else ""
        raise UserError(f"{where} {how}{said}", "run it by hand, and correct the recipe; else this is a miscompile")


def _least(counts: list[Count]) -> Count:
    cycles = [count.cycles for count in counts if count.cycles is not None]
    return Count(min(count.instructions for count in counts), min(cycles, default=None))


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
