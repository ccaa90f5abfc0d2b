"""Findings of the checks of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        status: `unknown` if this account or this machine cannot look.
        what: the thing that was checked, with what is wrong with it.
        remedy: what to do; empty if nothing.
    """

    status: Literal["ok", "missing", "unknown"]
    what: str
    remedy: str = ""


def ok(what: str) -> Finding:
    """Return the finding that a requirement is met."""
    return Finding("ok", what)


def missing(what: str, remedy: str) -> Finding:
    """Return the finding that a requirement is not met."""
    return Finding("missing", what, remedy)


def unknown(what: str, remedy: str) -> Finding:
    """Return the finding that a requirement could not be checked."""
    return Finding("unknown", what, remedy)
