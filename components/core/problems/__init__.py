"""Defines the optimization problems: everything in which inlining and register allocation differ."""

from __future__ import annotations

from operator import attrgetter

from components.core.problems.inlining import INLINING
from components.core.problems.problem import Problem
from components.core.problems.regalloc import REGALLOC
from components.platform.errors import UserError

__all__ = ["Problem", "describe_field", "get", "names"]

_PROBLEMS = {problem.name: problem for problem in (INLINING, REGALLOC)}


def names(field: str = "") -> tuple[str, ...]:
    """Return the names of all problems, for --problem; or of those whose `field` is true."""
    return tuple(name for name, problem in _PROBLEMS.items() if not field or getattr(problem, field))


def describe_field(field: str) -> str:
    """Return a field of each problem as readable text: "training.modules" as "16 for inlining, 32 for regalloc"."""
    return ", ".join(f"{attrgetter(field)(problem)} for {name}" for name, problem in _PROBLEMS.items())


def get(name: str) -> Problem:
    """Return the problem called `name`. UserError if there is no such problem."""
    try:
        return _PROBLEMS[name]
    except KeyError:
        raise UserError(f"no optimization problem is called {name!r}", f"use one of: {', '.join(_PROBLEMS)}") from None
