"""A build of the user's code that has ended, in its tree."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from components.core.projects.flags.types import Kind
from components.platform.errors import UserError
from components.platform.processes.build_tools import CommandTimeout, run_logged
from components.shrink.differences.records import Call
from components.shrink.targets import is_registered

_TRACE = "PS4='$ '; set -x; "
"""Start of a script whose shell says each command, as the log does."""
_TRACED = re.compile(r"\$+ (.+)")


@dataclass(frozen=True)
class BuiltTree:
    """A build that has ended, in its tree.

    Attributes:
        root: the copy of the user's tree.
        tools: directory of the compilers.
        runner: program that runs a command with them.
        environment: variables of the build and its checks.
        log: where they write.
        kinds: kinds of the linked files by their paths relative to the root.
        seconds: wall time of the build.
        emulators: commands that run the programs of other processors, by their paths.
        foreign: why programs of other processors cannot run; "" if they can, or if there are none.
        links: commands that link, with their working directories, if they were to be kept.
    """

    root: Path
    tools: Path
    runner: str
    environment: Mapping[str, str]
    log: Path
    kinds: Mapping[str, Kind]
    command: str
    seconds: float
    emulators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    foreign: str = ""
    links: tuple[Call, ...] = ()

    @property
    def runs_tests(self) -> bool:
        """Whether tests of the build can run its programs."""
        return not self.foreign and all(map(is_registered, self.emulators.values()))

    @property
    def can_relink(self) -> bool:
        """Whether one of the links makes each linked file."""
        outputs = [os.path.realpath(call.output) for call in self.links]
        return all(outputs.count(os.path.realpath(self.root / name)) == 1 for name in self.kinds)

    def relink(self, options: Sequence[str], timeout_s: float | None) -> None:
        """Repeat the links of the linked files with more options. UserError if one fails or takes too long."""
        made = {os.path.realpath(self.root / name) for name in self.kinds}
        for call in self.links:
            if os.path.realpath(call.output) not in made:
                continue
            command = [self.runner, str(self.tools / call.program), *call.words, *options]
            with naming_the_limit(f"the link of {call.output}", timeout_s):
                status = run_logged(
                    command, Path(call.directory), self.log, self.environment, timeout_s=timeout_s, of_user=True
                )
            if status != 0:
                raise UserError(f"the link of {call.output} ends with status {status}", f"see {self.log}")

    def run(self, script: str, timeout_s: float | None, trace: bool = False) -> tuple[int, str, str]:
        """Run a shell script; return its exit status, its output, and, with `trace`, its last command.

        Raises:
            UserError: it exceeds the time limit.
        """
        last, start = "", self.log.stat().st_size if self.log.exists() else 0

        def note(line: str) -> None:
            nonlocal last
            if match := _TRACED.match(line):
                last = match[1]

        command = [self.runner, "sh", "-e", "-c", f"{_TRACE if trace else ''}{script}"]
        with naming_the_limit(script, timeout_s):
            status = run_logged(
                command, self.root, self.log, self.environment, note if trace else None, timeout_s, of_user=True
            )
        with self.log.open("rb") as text:
            text.seek(start)
            return status, text.read().decode("utf-8", "replace"), last


@contextmanager
def naming_the_limit(subject: str, timeout_s: float | None) -> Iterator[None]:
    """Turn the time-out of a command into a UserError about `subject`."""
    try:
        yield
    except CommandTimeout:
        raise UserError(
            f"{subject} did not end in {timeout_s:.0f} s", "pass --check-timeout SECONDS if it takes longer"
        ) from None
