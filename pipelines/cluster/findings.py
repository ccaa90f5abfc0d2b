"""What a check of a cluster finds."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        status: `unknown` if this account or this machine cannot look.
        what: the thing that was checked, with what is wrong with it.
    """

    status: Literal["ok", "missing", "unknown"]
    what: str
    remedy: str = ""


ok = functools.partial(Finding, "ok")
missing = functools.partial(Finding, "missing")
unknown = functools.partial(Finding, "unknown")
