"""Compiles one module and returns its native size or scores and its decisions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.compile_outputs import map_output, take_output
from components.core.compiler.forced_decisions import ForcedDecisions, read_unreached
from components.core.compiler.logs.callsites import callsites_path, read_callsites
from components.core.compiler.logs.function_scores import read_flip_scores, read_function_scores
from components.core.compiler.logs.training_log import LogError, TrainingLog, read_log
from components.core.compiler.objects.elf import ElfError
from components.core.compiler.objects.function_sizes import FunctionSizes
from components.core.compiler.objects.object_file import measure_object
from components.core.compiler.replay.command_line import replay_arguments
from components.core.compiler.sample import NO_ROWS, Sample
from components.core.formats.corpus import Module
from components.core.formats.links import Lto
from components.platform.errors import UserError
from components.platform.processes import supervision
from components.platform.processes.reaper import scratch_directory

Reason = Literal["failed", "timeout", "log", "died"]

FLIPS_PER_TIMEOUT = 1000
"""Number of flips that together take at most about as long as a compile."""


@dataclass(frozen=True)
class Request:
    """A module to compile, and how to compile it.

    Attributes:
        want_functions: whether to attribute the object's bytes to its functions.
        want_bodies: whether to also compute digests of their instructions.
        extra_flags: additional cc1 flags.
        forced: forced decisions, one set for each sample of the advisor, or one for a single compile; empty if nothing
            is forced.
        flips: decisions that forks of this compile measure, each alone; the compile itself does not take them. A
            decision may occur with several actions. Only for problems with scores and an advisor with one sample.
        want_digest: whether to compute a digest of the object; only for an advisor that does not log.
        lto: link-time optimization that `Compiler.make_object` makes bitcode for; None for native code.
    """

    module: Module
    advisor: Advisor
    want_functions: bool = False
    extra_flags: tuple[str, ...] = ()
    forced: tuple[ForcedDecisions, ...] = ()
    flips: ForcedDecisions | None = None
    want_digest: bool = False
    want_bodies: bool = False
    lto: Lto | None = None

    def __post_init__(self) -> None:
        if self.forced and len(self.forced) != max(1, self.advisor.samples):
            raise ValueError(f"{len(self.forced)} sets of forced decisions for {self.advisor.samples} samples")
        if self.forced and not (self.advisor.samples or self.advisor.logs):
            raise ValueError("forced decisions require samples or a log, which their report is written with")
        if self.flips is not None and self.advisor.samples != 1:
            raise ValueError(f"flips require exactly one sample, not {self.advisor.samples}")


@dataclass(frozen=True)
class Result:
    """The result of a request.

    Attributes:
        samples: one, or as many as the advisor requests, in the order of their seeds.
        compile_s: wall time of the compiler process, including its start, but not the reading of its output.
    """

    module_name: str
    samples: tuple[Sample, ...]
    compile_s: float


class CompileError(Exception):
    """A module did not compile.

    Attributes:
        reason: "failed" (exit status), "timeout", "log" (its output cannot be read), or "died" (the workers that
            compiled it).
        detail: the end of the compiler's stderr, or what is wrong with the output or happened to the workers.
    """

    def __init__(self, module: str, reason: Reason, detail: str) -> None:
        super().__init__(module, reason, detail)
        self.module = module
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.module}: {self.reason}: {self.detail}"


@dataclass(frozen=True)
class Compiler:
    """Compiles modules with one clang; can be pickled and called in any thread or process.

    Attributes:
        timeout_s: time limit of one compile; a request of K samples, which is K compiles in one process or in several,
            gets K times as much, and every FLIPS_PER_TIMEOUT flips add it once more.
        allowed_options: names of recorded options that are replayed although they are not known to be harmless.
    """

    clang: Path
    problem: str
    timeout_s: float = 60.0
    allowed_options: tuple[str, ...] = ()

    names_callsites: ClassVar[bool] = True
    """Whether this clang writes the callers and callees of its decisions, for problems that have them."""

    def __call__(self, request: Request) -> Result:
        """Compile a module.

        Raises:
            CompileError: a failure of this module alone.
            UserError: a failure that would stop every compile.
        """
        with scratch_directory("compile-") as scratch:
            prefix = scratch / "m"
            completed = self._run(request, prefix)
            names = [f"m.{i}" for i in range(request.advisor.samples)] or ["m"]
            forced = request.forced or [None] * len(names)
            try:
                samples = tuple(
                    self._read_sample(scratch / name, request, rows) for name, rows in zip(names, forced, strict=True)
                )
            except (LogError, ElfError, FileNotFoundError) as error:
                problem = error.problem if isinstance(error, UserError) else str(error)
                raise CompileError(request.module.name, "log", problem) from error
        return Result(request.module.name, samples, completed.wall_s)

    def make_object(self, request: Request, output: Path) -> float:
        """Compile a module to the object `output`, whose directory exists, and return the seconds of wall time."""
        with scratch_directory("compile-") as scratch:
            completed = self._run(request, scratch / "m")
            take_output(scratch / "m.o", output)
        return completed.wall_s

    def _run(self, request: Request, prefix: Path) -> supervision.Completed:
        module, advisor = request.module, request.advisor
        flags = advisor.flags(self.problem, prefix.with_name("m.log"), prefix) + self._forced_flags(request, prefix)
        output: Path | str = "-" if advisor.samples else prefix.with_name("m.o")
        arguments = replay_arguments(
            module.arguments(),
            module.bitcode,
            output if self._makes_object(advisor) else None,
            [*flags, *request.extra_flags],
            module.thinlto_index,
            self.allowed_options,
            module.directory,
            request.lto,
            self.clang,
        )
        try:
            # In the scratch directory, so that files that a crash or an unusual flag leaves are removed with it.
            flips = len(request.flips) if request.flips is not None else 0
            timeout_s = self.timeout_s * (max(1, advisor.samples) + flips / FLIPS_PER_TIMEOUT)
            completed = supervision.run([self.clang, *arguments], timeout_s, cwd=prefix.parent, writable=prefix.parent)
        except supervision.ProcessTimeout as error:
            raise CompileError(module.name, "timeout", f"more than {error.timeout_s:g} s; {error.stderr}") from None
        completed.require_disk_space(prefix.parent)
        if completed.returncode != 0:
            how = f"signal {-completed.returncode}" if completed.returncode < 0 else f"status {completed.returncode}"
            raise CompileError(module.name, "failed", f"{how}; {completed.stderr}")
        return completed

    def _forced_flags(self, request: Request, prefix: Path) -> list[str]:
        """Write the files of forced decisions and of flips, and return the flags that name them."""
        flags = []
        if request.forced:
            path = prefix.with_name("forced")
            for i, forced in enumerate(request.forced):
                forced.sorted().write(path.with_name(f"forced.{i}") if request.advisor.samples else path, self.problem)
            flags += ["-mllvm", f"-mlgo-forced-decisions={path}"]
        if request.flips is not None:
            request.flips.write(prefix.with_name("flips"), self.problem)
            flags += ["-mllvm", f"-mlgo-measure-flips={prefix.with_name('flips')}"]
        return flags

    @property
    def _logs_scores(self) -> bool:
        return problems.get(self.problem).llvm.logs_scores

    def _makes_object(self, advisor: Advisor) -> bool:
        return not (self._logs_scores and (advisor.logs or advisor.samples))

    def _read_log(self, path: Path) -> TrainingLog:
        return read_log(path)

    def _read_sample(self, stem: Path, request: Request, forced: ForcedDecisions | None) -> Sample:
        """Read the files that the compiler wrote: `stem`.o, .log, and .log.calls or .calls."""
        text_size_bytes, function_sizes = 0, None
        if self._makes_object(request.advisor):
            text_size_bytes, function_sizes = read_object(
                Path(f"{stem}.o"), request.want_functions, request.want_bodies
            )
        unreached = NO_ROWS
        if forced is not None:
            report = Path(f"{stem}.forced" if request.advisor.samples else f"{stem}.log.forced")
            unreached = read_unreached(report, forced)
        if not request.advisor.logs:
            scores, flip_scores = None, None
            if request.advisor.samples and self._logs_scores:
                scores = read_function_scores(Path(f"{stem}.scores"))
            if request.flips is not None:
                flip_scores = read_flip_scores(stem.with_name("flips.scores"), len(request.flips))
            object_digest = hashlib.sha256(map_output(Path(f"{stem}.o"))).hexdigest() if request.want_digest else ""
            return Sample(text_size_bytes, None, None, function_sizes, scores, unreached, flip_scores, object_digest)
        log_path = Path(f"{stem}.log")
        log = self._read_log(log_path)
        callsites = None
        if problems.get(self.problem).llvm.callsites and self.names_callsites:
            calls_path = Path(f"{stem}.calls") if request.advisor.samples else callsites_path(log_path)
            callsites = read_callsites(calls_path)
            if (count := len(callsites.caller)) != log.decisions:
                raise LogError(calls_path, 0, f"{count} callsites for {log.decisions} logged decisions")
        scores = read_scores(log_path, log) if self._logs_scores else None
        return Sample(text_size_bytes, log, callsites, function_sizes, scores, unreached)


def read_scores(path: Path, log: TrainingLog) -> dict[str, float]:
    """Return the score of each context of `log`, which is the outcome of its last decision.

    Raises:
        LogError: a context has no score.
    """
    scores = {}
    for context in log.contexts:
        if context.outcomes is None or not len(context):
            raise LogError(path, 0, f"function {context.name!r} has no score")
        scores[context.name] = float(context.outcomes.reshape(-1)[-1])
    return scores


def read_object(path: Path, want_functions: bool, want_bodies: bool = False) -> tuple[int, FunctionSizes | None]:
    """Return the text size in bytes and, if wanted, the sizes of the functions. ElfError if it is not an object."""
    # Memory-mapped, because the sizes are in a few pages of headers and the rest need not be read. It is unmapped when
    # its last view is gone: closing it here would fail while an error's traceback holds a view.
    data = map_output(path)
    if not data:
        raise ElfError(f"{path} is empty")
    return measure_object(data, want_functions, want_bodies)
