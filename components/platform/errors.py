"""Defines the exception for all errors that the user can fix."""

from __future__ import annotations


class UserError(Exception):
    """An error that the user can fix: it names the problem and the remedy, and is shown without a traceback.

    Args:
        problem: what is wrong, including the name of the file, module, flag or package.
        remedy: what to do about it, if possible a command to copy; empty if it follows from the problem.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem, remedy)  # both in args, so that the error pickles between processes
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem}\n  remedy: {self.remedy}" if self.remedy else self.problem
