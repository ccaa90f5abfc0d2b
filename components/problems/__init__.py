"""What an optimization problem is: everything that inlining and another problem do not share."""

from __future__ import annotations

from components.console import UserError
from components.problems.inlining import INLINING
from components.problems.problem import Problem
from components.problems.regalloc import REGALLOC

__all__ = ["Problem", "get", "names", "told"]

_PROBLEMS = {problem.name: problem for problem in (INLINING, REGALLOC)}


def names() -> tuple[str, ...]:
    """The problems that there are, for --problem."""
    return tuple(_PROBLEMS)


def told(field: str) -> str:
    """A field of each problem, for people: "16 for inlining, 32 for regalloc"."""
    return ", ".join(f"{getattr(problem, field)} for {name}" for name, problem in _PROBLEMS.items())


def get(name: str) -> Problem:
    """The problem of that name.

    Raises:
        UserError: there is none.
    """
    try:
        return _PROBLEMS[name]
    except KeyError:
        raise UserError(f"no optimization problem is called {name!r}", f"use one of: {', '.join(_PROBLEMS)}") from None
