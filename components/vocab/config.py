"""What a run of the vocab step is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class VocabConfig:
    """trace: input artifact. output: the vocab."""

    trace: Path
    output: Path
