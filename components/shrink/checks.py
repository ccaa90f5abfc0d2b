"""Finds out whether a smaller build works: by the user's check, by the tests of the build, or by its programs.

The tests are those that the build system knows: `make check`, ctest, Meson's, Bazel's. If the user's own build fails
some of them, other builds may fail the same ones. Without tests, each program is run by both builds, confined, and has
to do the same.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.processes.build_tools import output_tail
from components.platform.storage.manifest import list_names
from components.shrink.builds.built_tree import BuiltTree
from components.shrink.programs import ProgramRuns
from components.shrink.tests_of_build import Tests, did_nothing, failed_tests, find_tests

_REDIRECTS_TRACE = re.compile(r"(?s)(?=.*(?:2>|>&|\|&))(?:.*[(){}`]|.*\b(?:exec|eval|done|fi|esac)\b|(?:.*\s)?\.\s)")
"""A check that redirects the standard error of more than programs, where the shell's own lines would change it."""
_MAX_NAMES = 3
TIMES_OF_BUILD, MIN_TIMEOUT_S = 10.0, 120.0
"""The default time limit of builds and checks, in times of the user's own build or its check, and at least."""


@dataclass
class Checks:
    """How builds are checked. What the user's own build does is the standard for the others.

    Attributes:
        command: the user's check, a shell command; "" for none.
        enabled: whether builds are checked without a command.
        timeout_s: time limit of each build and check but the user's own build; None for TIMES_OF_BUILD of the slower of
            that build and its check.
    """

    command: str = ""
    enabled: bool = True
    timeout_s: float | None = None
    _tests: Tests | None = None
    _failing: frozenset[str] = frozenset()
    _programs: ProgramRuns | None = None
    _why_not: str = field(default="", repr=False)

    def learn(self, own: BuiltTree) -> None:
        """Run the checks of the user's own build, which has ended, and keep what they do.

        Raises:
            UserError: the user's check fails.
        """
        given, started = self.timeout_s is not None, time.monotonic()
        if self.timeout_s is None:
            self.timeout_s = max(MIN_TIMEOUT_S, TIMES_OF_BUILD * own.seconds)
        if self.command:
            self._run_command(own)
        elif self.enabled and not self._learn_tests(own):
            self._learn_programs(own)
        if not given:  # tests may take longer than the build, and longer on a machine with other work
            self.timeout_s = max(self.timeout_s, TIMES_OF_BUILD * (time.monotonic() - started))

    def compare(self, other: BuiltTree) -> None:
        """Run the checks of another build. UserError if they find that it does not work as the user's own does."""
        if self.command:
            self._run_command(other)
        elif self._tests is not None:
            self._compare_tests(other, self._tests)
        elif self._programs is not None:
            self._programs.compare(other.root)

    def describe(self) -> str:
        """Return how the delivered files were checked, as the end of a sentence."""
        if self.command:
            return f"{self.command} passes"
        if self._tests is not None and self._failing:
            return f"{self._tests.command}: no test fails that passes by your own build ({self._why_not})"
        if self._tests is not None:
            return f"{self._tests.command} passes"
        if self._programs is not None:
            return f"{self._why_not or 'no tests were found'}; {self._programs.describe()}"
        return self._why_not or "not checked"

    def _run_command(self, tree: BuiltTree) -> None:
        check = self.command
        trace = not _REDIRECTS_TRACE.search(check)
        try:
            status, output, last = tree.run(check, self.timeout_s, trace)
        except UserError as error:
            raise UserError(f"the check, {error.problem}", error.remedy) from None
        if status != 0:
            where = f" (last command: {last})" if trace and last not in ("", check) else ""
            raise UserError(
                f"the check, {check}, ends with status {status}{where}:\n{output_tail(output)}", f"see {tree.log}"
            )

    def _learn_tests(self, own: BuiltTree) -> bool:
        """Run the tests that the build system knows, and return whether they tell if a build works."""
        tests = find_tests(own.root, own.command, own.log, own.environment)
        if tests is None:
            return False
        if tests.ran_by_build:
            self._tests = tests
            return True
        say(f"the check: {tests.command}")
        try:
            status, output, _ = own.run(tests.command, self.timeout_s)
        except UserError as error:
            self._why_not = f"{error.problem}: {error.remedy}"
            say(self._why_not)
            return False
        if status == tests.none_status or (status == 0 and did_nothing(output)):
            return False
        if status != 0 and not own.runs_tests:
            self._why_not = f"{tests.command} fails by your own build, whose programs are for another processor"
            say(self._why_not)
            return False
        self._failing = failed_tests(output)
        if status != 0:
            count = len(self._failing)
            self._why_not = f"your own build fails {f'{count} of its' if count else 'its'} tests"
            say(f"{self._why_not}: {list_names(sorted(self._failing), _MAX_NAMES)}" if count else self._why_not)
            if not count:
                return False
        self._tests = tests
        return True

    def _compare_tests(self, other: BuiltTree, tests: Tests) -> None:
        if tests.ran_by_build:
            return
        status, output, _ = other.run(tests.command, self.timeout_s)
        failing = failed_tests(output)
        if lost := failing - self._failing:
            raise UserError(f"{tests.command} fails {list_names(sorted(lost), _MAX_NAMES)}", f"see {other.log}")
        if status != 0 and not (failing and self._failing):
            raise UserError(f"{tests.command} ends with status {status}:\n{output_tail(output)}", f"see {other.log}")

    def _learn_programs(self, own: BuiltTree) -> None:
        programs = [name for name, kind in own.kinds.items() if kind == "program"]
        libraries = {str((own.root / name).parent) for name, kind in own.kinds.items() if kind == "shared library"}
        if not programs:
            self._why_not = self._why_not or "not checked: there are no tests, and no programs to run"
            return
        if own.foreign:
            self._why_not = f"not checked: {own.foreign}"
            say(self._why_not)
            return
        runs = ProgramRuns(sorted(programs), sorted(libraries), own.emulators)
        try:
            runs.learn(own.root)
        except UserError as error:
            self._why_not = f"not checked: {error.problem}"
            say(f"{self._why_not}; {error.remedy}")
            return
        self._programs = runs
