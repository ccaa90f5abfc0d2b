"""Findings of the checks of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
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


ok = partial(Finding, "ok")
missing = partial(Finding, "missing")
unknown = partial(Finding, "unknown")
