"""Compiles many modules and sets aside those that the compiler cannot do, up to a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from components.compiler.advisor import POLICY_FILES
from components.compiler.compile import CompileError, Request
from components.console import Progress, UserError
from components.workers.pool import WorkerPool

Q = TypeVar("Q", bound=Request)
R = TypeVar("R")

_VERSION = 1
_SHOWN = 5
_DETAIL_CHARACTERS = 2000


class Quarantine:
    """Modules that failed twice, with their reasons.

    Args:
        max_failed_fraction: more than this fraction of the modules stops the step.
        total_modules: what the fraction is of; 0 for the modules seen so far. A step that sees its modules a few at a
            time says how many there are, for two failures among the first thirty say little.
    """

    def __init__(self, max_failed_fraction: float, total_modules: int = 0) -> None:
        if not 0 <= max_failed_fraction <= 1:
            raise UserError(f"--max-failed-fraction {max_failed_fraction:g}", "give a number between 0 and 1")
        self.max_failed_fraction = max_failed_fraction
        self.total_modules = total_modules
        self._seen: set[str] = set()
        self._errors: dict[str, CompileError] = {}

    def __contains__(self, module_name: str) -> bool:
        return module_name in self._errors

    def __len__(self) -> int:
        return len(self._errors)

    @property
    def errors(self) -> tuple[CompileError, ...]:
        """In the order in which they came."""
        return tuple(self._errors.values())

    def see(self, module_name: str) -> None:
        self._seen.add(module_name)

    def add(self, error: CompileError) -> None:
        """Sets the module aside."""
        detail = error.detail[-_DETAIL_CHARACTERS:]
        self._errors[error.module] = CompileError(error.module, error.reason, detail)
        self._seen.add(error.module)

    def check(self) -> None:
        """UserError, naming modules and reasons, if too many failed."""
        total = max(self.total_modules, len(self._seen))
        if len(self._errors) <= self.max_failed_fraction * total:
            return
        kinds = ", ".join(f"{n} {kind}" for kind, n in Counter(e.reason for e in self.errors).most_common())
        lines = [f"  {error.module}: {error.reason}: {_last_words(error.detail)}" for error in self.errors[:_SHOWN]]
        if len(self._errors) > _SHOWN:
            lines.append(f"  and {len(self._errors) - _SHOWN} more")
        raise UserError(
            f"{len(self._errors)} of {total} modules do not compile ({kinds}), more than the allowed fraction of "
            f"{self.max_failed_fraction:g}:\n" + "\n".join(lines),
            "see whether corpus and clang belong together, take the modules out of the corpus, "
            "or raise --max-failed-fraction or --timeout-s",
        )

    def to_json(self) -> dict[str, Any]:
        """For reports and checkpoints."""
        return {
            "version": _VERSION,
            "max_failed_fraction": self.max_failed_fraction,
            "total_modules": self.total_modules,
            "seen": sorted(self._seen),
            "modules": [{"module": e.module, "reason": e.reason, "detail": e.detail} for e in self.errors],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Quarantine:
        if document.get("version") != _VERSION:
            raise UserError(f"a quarantine of version {document.get('version')}, this program reads {_VERSION}")
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
    """Yields each request that could be compiled with its result, as they are done.

    `compiler` is a Compiler, or what makes something smaller of a Compiler's results where the compile ran. Requests of
    modules in quarantine are left out. Each that fails is tried once more after the others, for a machine that was
    short of memory or time may have recovered; then its module goes into quarantine. `progress` is advanced by one for
    each request that is finished with, one way or the other.

    Raises UserError as soon as more modules failed than the quarantine allows; any exception but CompileError at once.
    """
    failed: list[Q] = []
    first = [request for request in requests if request.module.name not in quarantine]
    for policy in {request.advisor.policy for request in first}:
        if policy is not None:
            pool.share(policy, POLICY_FILES)
    for retrying, batch in ((False, first), (True, failed)):
        for index, outcome in pool.map_unordered(compiler, batch):
            request = batch[index]
            quarantine.see(request.module.name)
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
                progress.advance(**({"failed": len(quarantine)} if len(quarantine) else {}))


def _last_words(detail: str) -> str:
    """The line that says most: clang's first error, else the last line."""
    lines = [line for line in detail.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line or "rror" in line]
    return (errors or lines[-1:] or ["no message"])[0].strip()[:200]
