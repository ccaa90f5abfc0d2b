"""Configuration of the vocab step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class VocabConfig:
    """One run of the vocab step.

    Attributes:
        sampling_rate: fraction of the decisions that are counted, chosen at random by the seed.
    """

    trace: Path
    output: Path
    sampling_rate: float = 1.0
    seed: int = 0
