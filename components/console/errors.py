"""The one exception for everything that the user can cause and can mend."""

from __future__ import annotations


class UserError(Exception):
    """A condition that is the user's to mend: it names the problem and the remedy, and needs no traceback.

    Args:
        problem: what is wrong, naming the file, module, flag or package concerned.
        remedy: what to do about it, if possible a command that can be copied; empty if the problem says it all.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem, remedy)  # both in args, so that the error pickles between processes
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem}\n  remedy: {self.remedy}" if self.remedy else self.problem
