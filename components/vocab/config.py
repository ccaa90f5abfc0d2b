"""Configuration of the vocab step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class VocabConfig:
    """One run of the vocab step.

    Attributes:
        trace: input artifact.
        output: the vocab artifact to write.
    """

    trace: Path
    output: Path
