"""What the steps of the smoke test found: rows of its table."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Literal, get_args

from msgspec import Struct

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.shared_state.process_identity import ProcessIdentity

CHECKS_JSON = "checks.json"
FAIL_ONCE = ("auto", "yes", "no")
"""Whether a step fails once: on servers that are known to repeat it, on every server, or not at all."""
Status = Literal["works", "fails", "not tried"]
STATUSES: tuple[Status, ...] = get_args(Status)
TABLE_STEP = "smoke-report"
"""Task of the pipeline whose log ends with the table."""
TABLE_HEADING = "smoke test: "


class NotTried(UserError):
    """There is nothing to try here."""


class FailedOnPurpose(Exception):
    """This is the first attempt of the step that fails once."""


class Row(Struct, frozen=True):
    """What a check found.

    Attributes:
        what: the thing that was checked.
        found: what it is like, or what is wrong with it.
        remedy: what to do; empty if nothing.
    """

    what: str
    status: Status
    found: str
    remedy: str = ""
    seconds: float = 0.0

    def lines(self, step: str = "") -> list[str]:
        """Return the row as lines of a log. step: the one that checked it."""
        first = f"{self.status:11}{self.what}{f' ({step})' if step else ''}: {self.found}"
        return [first, *([f"{'':13}remedy: {self.remedy}"] if self.remedy else [])]


class StepChecks(Struct):
    """What one step found: the content of CHECKS_JSON.

    Attributes:
        step: name of the step.
        started_s, ended_s: when it began and ended, in seconds since 1970 by the clock of its node.
        next_step: an output parameter, on which conditions of the pipeline depend.
    """

    step: str
    started_s: float
    ended_s: float
    rows: list[Row]
    next_step: str = "run"


Checks = Mapping[str, Callable[[], str]]
"""What is checked -> a function that returns what it found.

It raises UserError if the thing does not work, and NotTried if there is nothing to try.
"""


def process_start_s() -> float:
    """Return when this process started, in seconds since 1970."""
    started_s = ProcessIdentity.here().started / os.sysconf("SC_CLK_TCK")  # since the start of the machine
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)


def perform(checks: Checks) -> list[Row]:
    """Carry out the checks, print what they find, and return it. FailedOnPurpose passes."""
    rows = []
    for what, check in checks.items():
        begin_s = time.monotonic()
        status, text, remedy = _result(check)
        row = Row(what, status, text, remedy, round(time.monotonic() - begin_s, 3))
        for line in row.lines():
            say(line)
        rows.append(row)
    return rows


def _result(check: Callable[[], str]) -> tuple[Status, str, str]:
    try:
        return "works", check(), ""
    except NotTried as reason:
        return "not tried", reason.problem, reason.remedy
    except UserError as error:
        return "fails", error.problem, error.remedy
    except FailedOnPurpose:
        raise
    except OSError as error:
        return "fails", str(error), "check the volumes and the user of the step"
    except Exception as error:  # a table with what is wrong is worth more than a step that ends without one
        traceback.print_exc()
        return "fails", f"{type(error).__name__}: {error}", "this is an error in the check: see the step's log"
