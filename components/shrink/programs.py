"""Runs the programs of two builds, confined, and compares what they print and how they end."""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from components.platform.errors import UserError
from components.platform.processes import sandbox
from components.platform.processes.cgroup import available_processors
from components.platform.processes.supervision import ProcessTimeout, run, signal_name
from components.platform.processes.tree_supervisor import FINISH_S

_ARGUMENTS: tuple[tuple[str, ...], ...] = (("--version",), ("--help",), ())
_TIMEOUT_S, _TIMED_OUT, _NOT_STARTED = 2.0, 124, 127
"""Time limit of a run, and the exit statuses of coreutils' timeout, and of a program whose libraries are not found."""
_TREE_TIMEOUT_S = _TIMEOUT_S + FINISH_S + 2.0
"""Time limit with what the program leaves behind, which has time to end by itself."""
_MAX_RUNS = 150
"""Runs of each build. A tree may have hundreds of example programs."""
_MAX_OUTPUT = 1 << 20
_MAX_SHOWN, _MAX_MESSAGE = 60, 200
_OF_A_BUILD = re.compile(
    r"(?i)\b(?:gcc|g\+\+|clang|llvm|gnu c)\b.*"  # a compiler's name, and its version behind it
    r"|\b\d{1,2}:\d{2}:\d{2}\b|\b[A-Z][a-z]{2} [ \d]\d \d{4}\b|\b\d{4}-\d{2}-\d{2}\b"  # times and dates
    r"|\b0x[0-9a-f]{6,}\b"  # addresses
)
"""Text that may differ between two builds of one source."""


@dataclass(frozen=True)
class _Outcome:
    """What a program did.

    Attributes:
        status: exit status, if negative the number of a signal; None if it was stopped at the time limit.
        output: what it printed, without what differs between builds; None if that differs from run to run.
    """

    status: int | None
    output: str | None

    def differs(self, expected: _Outcome) -> bool:
        return self.status != expected.status or (expected.output is not None and self.output != expected.output)


@dataclass
class ProgramRuns:
    """What the programs of the user's own build do.

    Attributes:
        programs: paths relative to the root of the tree.
        libraries: directories of the build's shared libraries.
        emulators: commands that run the programs of other processors.
    """

    programs: Sequence[str]
    libraries: Sequence[str]
    emulators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    _expected: dict[tuple[str, tuple[str, ...]], _Outcome] = field(default_factory=dict)

    def learn(self, root: Path) -> None:
        """Run the programs of the user's own build, twice, and keep what they do.

        Raises:
            UserError: programs cannot be confined here, or none starts.
        """
        if sandbox.kind() == "none":
            raise UserError(
                "there are no tests, and programs cannot be run confined here",
                "name a check by --check, or install bubblewrap",
            )
        runs = [(name, arguments) for name in self.programs for arguments in _ARGUMENTS][:_MAX_RUNS]
        first, second = self._run_all(root, runs), self._run_all(root, runs)
        if all(outcome.status == _NOT_STARTED for outcome in first):
            last = (first[0].output or "").strip().splitlines()[-1:]
            raise UserError(
                f"there are no tests, and no program starts{f': {last[0][:_MAX_MESSAGE]}' if last else ''}",
                "name a check by --check that sets up what they need",
            )
        for key, one, two in zip(runs, first, second, strict=True):
            if one.status == two.status:
                self._expected[key] = one if one.output == two.output else _Outcome(one.status, None)

    def compare(self, root: Path) -> None:
        """Run the programs of another build. UserError if one does something else."""
        runs = list(self._expected)
        for (name, arguments), outcome in zip(runs, self._run_all(root, runs), strict=True):
            expected, shown = self._expected[name, arguments], " ".join((name, *arguments))
            if outcome.differs(expected):
                outcome = self._run(root, name, arguments)  # a machine with other work may have been slow
            if not outcome.differs(expected):
                continue
            if outcome.status != expected.status:
                raise UserError(
                    f"{shown} {_ended(outcome)}, by your own compilers it {_ended(expected)}", "name a check by --check"
                )
            raise UserError(
                f"{shown} prints {_difference(outcome.output or '', expected.output or '')}, as by your own compilers",
                "name a check by --check if both are right",
            )

    def describe(self) -> str:
        """Return how builds were checked, as the end of a sentence."""
        names = {name for name, _ in self._expected}
        which = "its program does" if len(names) == 1 else f"its {len(names)} programs do"
        emulators = dict.fromkeys(os.path.basename(command[0]) for command in self.emulators.values())
        under = f" under {', '.join(emulators)}" if emulators else ""
        return f"{which} with --version, with --help and with nothing what yours do{under}"

    def _run_all(self, root: Path, runs: Sequence[tuple[str, tuple[str, ...]]]) -> list[_Outcome]:
        with ThreadPoolExecutor(available_processors()) as pool:
            return list(pool.map(lambda one: self._run(root, *one), runs))

    def _run(self, root: Path, name: str, arguments: tuple[str, ...]) -> _Outcome:
        # The search path of the system's libraries comes behind these.
        variables = [f"LD_LIBRARY_PATH={os.pathsep.join(self.libraries)}"] if self.libraries else []
        emulator = [*self.emulators.get(name, ())]
        if emulator:
            emulator += [part for variable in variables for part in ("-E", variable)]
            variables = []
        program = ["timeout", f"{_TIMEOUT_S:.0f}", *emulator, str(root / name), *arguments]
        command = ["/usr/bin/env", "-u", "DISPLAY", *variables, *program]
        with tempfile.TemporaryDirectory(prefix="mlgo-run-") as scratch, tempfile.TemporaryFile() as stdout:
            try:
                done = run(command, _TREE_TIMEOUT_S, stdout.fileno(), root, writable=Path(scratch), daemons=True)
            except ProcessTimeout:
                return _Outcome(None, None)
            if done.returncode == _TIMED_OUT:
                return _Outcome(None, None)
            stdout.seek(0)
            text = stdout.read(_MAX_OUTPUT).decode("utf-8", "replace") + done.stderr
        return _Outcome(done.returncode, _OF_A_BUILD.sub("", text.replace(scratch, "")))


def _ended(outcome: _Outcome) -> str:
    if outcome.status is None:
        return f"runs for more than {_TIMEOUT_S:.0f} s"
    if outcome.status < 0:
        return f"is ended by {signal_name(-outcome.status)}"
    return f"ends with status {outcome.status}"


def _difference(got: str, expected: str) -> str:
    """Return the first lines that differ, as "X, not Y"."""
    pairs = itertools.zip_longest(got.splitlines(), expected.splitlines(), fillvalue="")
    one, other = next((pair for pair in pairs if pair[0] != pair[1]), (got, expected))
    return f"{one[:_MAX_SHOWN]!r}, not {other[:_MAX_SHOWN]!r}"
