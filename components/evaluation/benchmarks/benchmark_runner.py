"""Runs the benchmarks of a built project, each in its own folder, and counts the executed instructions or takes the
time."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from components.core.projects.benchmark import make_input
from components.core.projects.build import BuiltProject
from components.core.projects.flags.section_sizes import measure
from components.core.projects.recipe import Recipe
from components.core.projects.recipe_document import Benchmark
from components.core.projects.speed.counters import Count, Counter
from components.core.projects.speed.stopwatch import read_stopwatch, stopwatch_command
from components.platform.console import Progress, say
from components.platform.errors import UserError
from components.platform.processes import supervision
from components.platform.processes.process_tree import describe_left
from components.platform.storage.digests import file_digest

TIMEOUT_S = 1800.0
"""Time limit of one counted run, about half a minute without a counter."""
INPUT = "input"
OUTPUT = "output"
STDOUT = "stdout"
_KILL_INTERVAL_S = 0.1


@dataclass(frozen=True)
class BenchmarkRun:
    """Result of one benchmark.

    program: path relative to the build directory; text_bytes: its machine code (.text*). stdout, output: SHA-256 of
    the standard output, and of the content of {output} ("" if the benchmark names no such file).
    """

    program: str
    text_bytes: int
    count: Count
    stdout: str
    output: str


@dataclass(frozen=True)
class _Command:
    """A benchmark's command: `arguments`, executed in `run_dir`; `subject` begins messages about it."""

    subject: str
    arguments: tuple[str, ...]
    run_dir: Path
    stdin: Path | None

    @property
    def figures(self) -> Path:
        return self.run_dir / "figures"

    def execute(self, prefix: list[str], log: Path | None = None) -> None:
        """Execute it as the arguments of `prefix`, which writes `figures`, and its own messages to `log`."""
        for path in (self.run_dir / OUTPUT, self.figures):
            path.unlink(missing_ok=True)
        # The environment also influences what a program executes.
        command = ["/usr/bin/env", "-i", "LC_ALL=C", "PATH=/usr/bin:/bin", *prefix, *self.arguments]
        try:
            with open(self.run_dir / STDOUT, "wb") as stdout:
                done = supervision.run(command, TIMEOUT_S, stdout.fileno(), self.run_dir, self.stdin, daemons=True)
        except supervision.ProcessTimeout:
            problem = f"{self.subject} did not end within {TIMEOUT_S:.0f} s"
            raise UserError(problem, "make it smaller in the recipe") from None
        if done.left_running:
            say(describe_left(self.subject, done.left_running))
        if done.returncode != 0:
            outcome = f"has status {done.returncode}" if done.returncode > 0 else f"ended by signal {-done.returncode}"
            stderr = f"; stderr:\n{done.stderr[-1000:]}" if done.stderr else ""
            # What stopped valgrind itself, such as debug information that it cannot read, is only in its log.
            if log and log.is_file() and (written := log.read_text(encoding="utf-8", errors="replace").strip()):
                stderr += f"; {log.name}:\n{written[-1000:]}"
            raise UserError(
                f"{self.subject} {outcome}{stderr}", "run it by hand and correct the recipe; else this is a miscompile"
            )


def run_benchmarks(
    recipe: Recipe, built: BuiltProject, source: Path, folder: Path, title: str, counter: Counter, jobs: int
) -> list[BenchmarkRun]:
    """Run all benchmarks of `recipe` and return their results in order.

    Args:
        folder: folder of `make_inputs`, shared by the runs of both builds: outputs of the first are inputs of both.
        title: name of the compiler, for progress and errors.
        jobs: parallel runs, if the counter allows more than one.

    Raises:
        UserError: a program is missing, fails, writes nothing to {output}, or takes longer than TIMEOUT_S.
    """
    programs = [_program(recipe, benchmark, built) for benchmark in recipe.benchmarks]
    stopped = Event()
    futures: dict[str, Future[BenchmarkRun]] = {}
    workers = jobs if counter.parallel else 1
    with (
        Progress(f"running {recipe.name} built by {title} ({counter.name})", len(programs)) as progress,
        ThreadPoolExecutor(workers) as executor,
    ):

        def work(benchmark: Benchmark, program: Path) -> BenchmarkRun:
            benchmark_input = benchmark.input
            if benchmark_input is not None and benchmark_input.output_of:
                futures[benchmark_input.output_of].result()  # started before this one: the executor is FIFO
            command = _command(recipe, benchmark, program, source, folder, title)
            run = _run(command, benchmark, program, built, counter, stopped)
            progress.advance()
            return run

        try:
            for benchmark, program in zip(recipe.benchmarks, programs, strict=True):
                futures[benchmark.name] = executor.submit(work, benchmark, program)
            return [futures[benchmark.name].result() for benchmark in recipe.benchmarks]
        except BaseException:
            stopped.set()
            _stop(set(futures.values()), executor)
            raise


def make_inputs(recipe: Recipe, source: Path, folder: Path) -> None:
    """Make a folder for each benchmark, with its input file, from a source tree before anything is built in it.

    Existing files stay, so that both builds read the same input. UserError if the source has none of the files.
    """
    for benchmark in recipe.benchmarks:
        path = folder / benchmark.name / INPUT
        path.parent.mkdir(parents=True, exist_ok=True)
        if benchmark.input is not None and not benchmark.input.output_of and not path.exists():
            make_input(benchmark.input, source, path)


def _stop(futures: set[Future[BenchmarkRun]], executor: ThreadPoolExecutor) -> None:
    executor.shutdown(wait=False, cancel_futures=True)
    pending = {future for future in futures if not future.done()}
    while pending:
        # Repeated, because a thread may be starting a program.
        supervision.kill_running()
        pending = wait(pending, timeout=_KILL_INTERVAL_S).not_done


def _program(recipe: Recipe, benchmark: Benchmark, built: BuiltProject) -> Path:
    matches = sorted({path.resolve() for path in built.directory.glob(benchmark.program) if path.is_file()})
    if len(matches) != 1 or not matches[0].is_relative_to(built.directory.resolve()):
        names = ", ".join(path.name for path in matches) or "nothing"
        raise UserError(
            f"{recipe.name}: benchmark {benchmark.name} needs one program, but {benchmark.program} matches {names}",
            f"correct `program` in the recipe ({built.log} shows what the build made)",
        )
    return matches[0]


def time_benchmarks(recipe: Recipe, built: BuiltProject, source: Path, folder: Path, title: str) -> list[float]:
    """Run each benchmark once, one after the other, and return the processor time of each in seconds.

    Args:
        folder: where `run_benchmarks` ran them.
        title: name of the compiler, for errors.

    Raises:
        UserError: a program fails, or takes longer than TIMEOUT_S.
    """
    times = []
    for benchmark in recipe.benchmarks:
        command = _command(recipe, benchmark, _program(recipe, benchmark, built), source, folder, title)
        command.execute(stopwatch_command(command.figures))
        times.append(read_stopwatch(command.figures))
    return times


def _run(
    command: _Command, benchmark: Benchmark, program: Path, built: BuiltProject, counter: Counter, stopped: Event
) -> BenchmarkRun:
    text_bytes = measure(program).sizes.text  # first, because it says what is wrong with a file that is no program
    counts = []
    for _ in range(counter.repeats):
        if stopped.is_set():
            raise supervision.ProcessKilled(str(program))
        command.execute(counter.command(command.figures), counter.log(command.figures))
        counts.append(counter.read(command.figures))
    output = command.run_dir / OUTPUT
    if benchmark.writes_output and not output.is_file():
        raise UserError(f"{command.subject} wrote nothing to its output", "correct its arguments in the recipe")
    cycles = [count.cycles for count in counts if count.cycles is not None]
    return BenchmarkRun(
        str(program.relative_to(built.directory.resolve())),
        text_bytes,
        Count(min(count.instructions for count in counts), min(cycles, default=None)),
        file_digest(command.run_dir / STDOUT),
        file_digest(output) if benchmark.writes_output else "",
    )


def _command(recipe: Recipe, benchmark: Benchmark, program: Path, source: Path, folder: Path, title: str) -> _Command:
    run_dir = (folder / benchmark.name).absolute()
    if benchmark.input is not None and benchmark.input.output_of and not (run_dir / INPUT).exists():
        shutil.copyfile(run_dir.parent / benchmark.input.output_of / OUTPUT, run_dir / INPUT)
    # Relative names make the arguments, and so the executed instructions, independent of the directory.
    names = {"{input}": INPUT, "{output}": OUTPUT, "{source}": os.path.relpath(source, run_dir.resolve())}
    arguments = [os.path.relpath(program, run_dir.resolve())]
    for argument in benchmark.arguments:
        for placeholder, name in names.items():
            argument = argument.replace(placeholder, name)
        arguments.append(argument)
    subject = f"{recipe.name}: benchmark {benchmark.name}, built by {title},"
    return _Command(subject, tuple(arguments), run_dir, run_dir / INPUT if benchmark.stdin else None)
