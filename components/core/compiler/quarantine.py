"""Compiles many modules and quarantines those that do not compile, up to a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from components.core.compiler.advisor import shared_files
from components.core.compiler.compile import CompileError, Request
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.workers.pool import WorkerPool, WorkersDied

Q = TypeVar("Q", bound=Request)
R = TypeVar("R")

_VERSION = 1
_MAX_LISTED_MODULES = 5
_DETAIL_CHARACTERS = 2000
_NO_CODE_GENERATOR = "No available targets are compatible with"
"""Part of what clang says about a triple that it was not linked for."""


class Quarantine:
    """Modules that failed to compile twice, or that workers died of, with the reasons.

    Args:
        max_failed_fraction: the step stops if more than this fraction of the modules fails.
        total_modules: denominator of the fraction; 0 for the number of modules seen so far. A step that sees its
            modules a few at a time passes their total number, because two failures among the first thirty modules say
            little.
        min_allowed: number of failed modules that are allowed whatever the fraction.
    """

    def __init__(self, max_failed_fraction: float, total_modules: int = 0, min_allowed: int = 0) -> None:
        if not 0 <= max_failed_fraction <= 1:
            raise UserError(
                f"--max-failed-fraction {max_failed_fraction:g} is out of range", "pass a number between 0 and 1"
            )
        self.max_failed_fraction = max_failed_fraction
        self.total_modules = total_modules
        self._min_allowed = min_allowed
        self._seen: set[str] = set()
        self._errors: dict[str, CompileError] = {}

    def __contains__(self, module_name: str) -> bool:
        return module_name in self._errors

    @property
    def errors(self) -> tuple[CompileError, ...]:
        """The errors in order of arrival."""
        return tuple(self._errors.values())

    def see(self, module_name: str) -> None:
        """Count a module that was compiled or failed."""
        self._seen.add(module_name)

    def add(self, error: CompileError) -> None:
        """Put the module of `error` into quarantine."""
        detail = error.detail[-_DETAIL_CHARACTERS:]
        self._errors[error.module] = CompileError(error.module, error.reason, detail)
        self._seen.add(error.module)

    def check(self) -> None:
        """Raise UserError with modules and reasons if too many modules failed."""
        total = max(self.total_modules, len(self._seen))
        # A step without a single module left has to say why.
        if len(self._errors) <= max(self.max_failed_fraction * total, min(self._min_allowed, total - 1)):
            return
        kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(e.reason for e in self.errors).most_common())
        lines = [
            f"  {error.module}: {error.reason}: {_summary_line(error.detail)}"
            for error in self.errors[:_MAX_LISTED_MODULES]
        ]
        if len(self._errors) > _MAX_LISTED_MODULES:
            lines.append(f"  and {len(self._errors) - _MAX_LISTED_MODULES} more")
        remedy = (
            "check that the corpus fits the clang, remove the modules from the corpus, "
            "or raise --max-failed-fraction or --timeout-s"
        )
        if any(error.reason == "died" for error in self.errors):
            remedy = f"give the workers more memory (Ray's log says why they died); {remedy}"
        if any(_NO_CODE_GENERATOR in error.detail for error in self.errors):
            remedy = "the clang lacks their code generator: build it with --targets all, or use --strategy plugin"
        raise UserError(
            f"{len(self._errors)} of {total} modules do not compile ({kinds}), more than the allowed fraction of "
            f"{self.max_failed_fraction:g}:\n" + "\n".join(lines),
            remedy,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for reports and checkpoints."""
        return {
            "version": _VERSION,
            "max_failed_fraction": self.max_failed_fraction,
            "total_modules": self.total_modules,
            "seen": sorted(self._seen),
            "modules": [{"module": e.module, "reason": e.reason, "detail": e.detail} for e in self.errors],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Quarantine:
        """Restore a quarantine from its JSON form. UserError if it has another version."""
        if document.get("version") != _VERSION:
            raise UserError(f"the quarantine has version {document.get('version')}, this program reads {_VERSION}")
        quarantine = cls(document["max_failed_fraction"], document["total_modules"])
        quarantine._seen.update(document["seen"])
        for entry in document["modules"]:
            quarantine.add(CompileError(entry["module"], entry["reason"], entry["detail"]))
        return quarantine


def compile_all(
    pool: WorkerPool,
    compiler: Callable[[Q], R],
    requests: Iterable[Q],
    quarantine: Quarantine,
    progress: Progress | None = None,
) -> Generator[tuple[Q, R], None, None]:
    """Compile modules in parallel and yield each compiled request with its result, in order of completion.

    A failed request is retried once after all others, because a machine that was short of memory or time may have
    recovered; if it fails again, its module goes into quarantine.

    Args:
        pool: the workers that compile.
        compiler: a Compiler, or a callable that reduces the results of a Compiler on the worker.
        requests: requests whose modules are in quarantine are skipped.
        quarantine: receives the modules that fail twice.
        progress: advanced by one for each request that has succeeded or finally failed.

    Raises:
        UserError: more modules failed than the quarantine allows.
        Exception: any exception of a compile except CompileError is raised at once.
    """
    failed: list[Q] = []
    first = [request for request in requests if request.module.name not in quarantine]
    for policy in {request.advisor.policy for request in first}:
        if policy is not None:
            pool.share(policy, shared_files(policy))
    for retrying, batch in ((False, first), (True, failed)):
        for index, outcome in pool.map_unordered(compiler, batch):
            request = batch[index]
            quarantine.see(request.module.name)
            if isinstance(outcome, WorkersDied):
                outcome = CompileError(request.module.name, "died", outcome.problem)
            if isinstance(outcome, CompileError):
                if not retrying:
                    failed.append(request)
                    continue
                quarantine.add(outcome)
                quarantine.check()
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                yield request, outcome
            if progress is not None:
                progress.advance(**({"failed": len(quarantine.errors)} if quarantine.errors else {}))


def _summary_line(detail: str) -> str:
    """Return the most informative line: clang's first error, or the last line."""
    lines = [line for line in detail.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line or "rror" in line]
    return (errors or lines[-1:] or ["no message"])[0].strip()[:200]
