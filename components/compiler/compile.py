"""One module in, its native size or scores and its decisions out: the measurement that everything else is built on."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import numpy.typing as npt

from components import problems
from components.compiler import process
from components.compiler.advisor import Advisor
from components.compiler.callsites import Callsites, callsites_path, read_callsites
from components.compiler.command_line import replay_arguments
from components.compiler.elf import Elf, ElfError
from components.compiler.forced_decisions import ForcedDecisions, read_unreached
from components.compiler.function_scores import read_flip_scores, read_function_scores
from components.compiler.function_sizes import FunctionSizes, read_function_sizes
from components.compiler.guard import GUARD
from components.compiler.training_log import LogError, TrainingLog, read_log
from components.console import UserError
from components.formats.corpus import Module
from components.formats.names import readable

Reason = Literal["failed", "timeout", "log"]

FLIPS_PER_TIMEOUT = 1000
"""Flips that together take about as long as a compile, at the most."""
_NO_SPACE = "No space left on device"
_NO_ROWS = np.empty(0, np.intp)


@dataclass(frozen=True)
class Request:
    """A module to compile, and how.

    Attributes:
        want_functions: also attribute the object's bytes to its functions.
        extra_flags: of cc1.
        forced: one for each sample of the advisor, or one for a single compile; empty if nothing is forced.
        want_digest: also digest the object, of an advisor that does not log.
        flips: decisions that are measured, each alone, by forks of this compile, which itself does not take them; a
            decision may be among them with several actions. For problems with scores, of an advisor with one sample.
    """

    module: Module
    advisor: Advisor
    want_functions: bool = False
    extra_flags: tuple[str, ...] = ()
    forced: tuple[ForcedDecisions, ...] = ()
    flips: ForcedDecisions | None = None
    want_digest: bool = False

    def __post_init__(self) -> None:
        if self.forced and len(self.forced) != max(1, self.advisor.samples):
            raise ValueError(f"{len(self.forced)} sets of forced decisions for {self.advisor.samples} samples")
        if self.forced and not (self.advisor.samples or self.advisor.logs):
            raise ValueError("the report of forced decisions goes with a sample or with a log")
        if self.flips is not None and self.advisor.samples != 1:
            raise ValueError(f"flips are measured in one sample, not in {self.advisor.samples}")


@dataclass(frozen=True)
class Sample:
    """What one compile made, of which the problem says what it is judged by.

    text_size_bytes: native text as llvm-size counts it; 0 if no object was made, because there are scores. log: if
    the advisor logs. callsites: of a log that has them. function_sizes: text bytes of functions, if wanted.
    scores: by function, of problems that have them, if the advisor logs or samples; the same functions whoever decided,
    less is better.
    unreached: intp [n], rows of the request's forced decisions that this compile never came to. flip_scores:
        float32 [N], what the score of its function is with each of the N flips; NaN for those that the compile never
        came to. object_digest: SHA-256 of the object, if wanted.
    """

    text_size_bytes: int = 0
    log: TrainingLog | None = None
    callsites: Callsites | None = None
    function_sizes: FunctionSizes | None = None
    scores: dict[str, float] | None = None
    unreached: npt.NDArray[np.intp] = field(default_factory=lambda: _NO_ROWS)
    flip_scores: npt.NDArray[np.float32] | None = None
    object_digest: str = ""

    def readable_scores(self) -> dict[str, float]:
        """`scores` by function as a trace or a report has its name. ValueError if there are none."""
        if self.scores is None:
            raise ValueError("scores are of a compile that logs or samples, and this one does neither")
        return {readable(name): score for name, score in self.scores.items()}


@dataclass(frozen=True)
class Result:
    """samples: one, or as many as the advisor was asked for, in the order of their seeds. compile_s: the compiler's
    wall time, its start included, what is read afterwards not."""

    module_name: str
    samples: tuple[Sample, ...]
    compile_s: float


class CompileError(Exception):
    """A module did not compile. reason: "failed" (exit status), "timeout", or "log" (its output cannot be read).
    detail: the end of the compiler's stderr, or what is wrong with the output."""

    def __init__(self, module: str, reason: Reason, detail: str) -> None:
        super().__init__(module, reason, detail)
        self.module = module
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.module}: {self.reason}: {self.detail}"


@dataclass(frozen=True)
class Compiler:
    """Compiles modules with one clang; may be pickled and called in any thread or process.

    clang: the executable. problem: name of the optimization problem. timeout_s: of one compile; a request of K samples,
    which is K compiles in one process or in several, gets K times as much, and so do FLIPS_PER_TIMEOUT flips.
    allowed_options: recorded options that are replayed though they are not known to be harmless, by name.
    """

    clang: Path
    problem: str
    timeout_s: float = 60.0
    allowed_options: tuple[str, ...] = ()

    def __call__(self, request: Request) -> Result:
        """Raises CompileError for what concerns this module alone, UserError for what would stop every compile."""
        with TemporaryDirectory(prefix="compile-", dir=GUARD.scratch(), ignore_cleanup_errors=True) as directory:
            scratch = Path(directory)
            prefix = scratch / "m"
            completed = self._run(request, prefix)
            names = [f"m.{i}" for i in range(request.advisor.samples)] or ["m"]
            forced = request.forced or [None] * len(names)
            try:
                samples = tuple(
                    self._read_sample(scratch / name, request, of) for name, of in zip(names, forced, strict=True)
                )
            except (LogError, ElfError, FileNotFoundError) as error:
                problem = error.problem if isinstance(error, UserError) else str(error)
                raise CompileError(request.module.name, "log", problem) from error
        return Result(request.module.name, samples, completed.wall_s)

    def _run(self, request: Request, prefix: Path) -> process.Completed:
        module, advisor = request.module, request.advisor
        flags = advisor.flags(self.problem, prefix.with_name("m.log"), prefix) + self._forced_flags(request, prefix)
        output: Path | str | None = "-" if advisor.samples else prefix.with_name("m.o")
        if not self._makes_object(advisor):
            output = None
        arguments = replay_arguments(
            module.arguments(), module.bitcode, output, [*flags, *request.extra_flags], module.thinlto_index,
            self.allowed_options, module.directory,
        )  # fmt: skip
        try:
            # In the scratch directory, so that what a crash or an odd flag leaves behind goes away with it.
            flips = len(request.flips) if request.flips is not None else 0
            timeout_s = self.timeout_s * (max(1, advisor.samples) + flips / FLIPS_PER_TIMEOUT)
            completed = process.run([self.clang, *arguments], timeout_s, cwd=prefix.parent, writable=prefix.parent)
        except process.ProcessTimeout as error:
            raise CompileError(module.name, "timeout", f"more than {error.timeout_s:g} s; {error.stderr}") from None
        if _NO_SPACE in completed.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(prefix.parent))
        if completed.returncode != 0:
            how = f"signal {-completed.returncode}" if completed.returncode < 0 else f"status {completed.returncode}"
            raise CompileError(module.name, "failed", f"{how}; {completed.stderr}")
        return completed

    def _forced_flags(self, request: Request, prefix: Path) -> list[str]:
        """Write the files of forced decisions and of flips and return the flags that name them."""
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

    def _makes_object(self, advisor: Advisor) -> bool:
        return problems.get(self.problem).measure == "size" or not (advisor.logs or advisor.samples)

    def _read_sample(self, stem: Path, request: Request, forced: ForcedDecisions | None) -> Sample:
        """Reads the files that the compiler wrote with the names `stem`.o, .log and .log.calls or .calls."""
        faces = problems.get(self.problem)
        text_size_bytes, function_sizes = 0, None
        if self._makes_object(request.advisor):
            text_size_bytes, function_sizes = _read_object(Path(f"{stem}.o"), request.want_functions)
        unreached = _NO_ROWS
        if forced is not None:
            report = Path(f"{stem}.forced" if request.advisor.samples else f"{stem}.log.forced")
            unreached = read_unreached(report, forced)
        if not request.advisor.logs:
            scores, flip_scores = None, None
            if request.advisor.samples and faces.measure == "score":
                scores = read_function_scores(Path(f"{stem}.scores"))
            if request.flips is not None:
                flip_scores = read_flip_scores(stem.with_name("flips.scores"), len(request.flips))
            object_digest = hashlib.sha256(Path(f"{stem}.o").read_bytes()).hexdigest() if request.want_digest else ""
            return Sample(text_size_bytes, None, None, function_sizes, scores, unreached, flip_scores, object_digest)
        log_path = Path(f"{stem}.log")
        log = read_log(log_path)
        callsites = None
        if faces.callsites:
            calls_path = Path(f"{stem}.calls") if request.advisor.samples else callsites_path(log_path)
            callsites = read_callsites(calls_path)
            if len(callsites.caller) != log.decisions:
                what = f"{len(callsites.caller)} callsites of {log.decisions} logged decisions"
                raise LogError(calls_path, 0, what)
        scores = read_scores(log_path, log) if faces.measure == "score" else None
        return Sample(text_size_bytes, log, callsites, function_sizes, scores, unreached)


def read_scores(path: Path, log: TrainingLog) -> dict[str, float]:
    """The score of each context of `log`: the outcome of its last decision. LogError if `path`'s log has no scores."""
    scores = {}
    for context in log.contexts:
        if context.outcomes is None or not len(context):
            raise LogError(path, 0, f"the function {context.name!r} has no score")
        scores[context.name] = float(context.outcomes.reshape(-1)[-1])
    return scores


def _read_object(path: Path, want_functions: bool) -> tuple[int, FunctionSizes | None]:
    with open(path, "rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            raise ElfError(f"{path} is empty")
        # Mapped, for the sizes are in a few pages of the headers and the rest need not be read. Unmapped when the last
        # view of it is gone: closing it here would fail while an error's traceback has one.
        elf = Elf(memoryview(mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)))
        return elf.text_size(), read_function_sizes(elf) if want_functions else None
