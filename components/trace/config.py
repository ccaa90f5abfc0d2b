"""Configuration of the trace step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

TFRECORD_FILE = "trace.tfrecord"
Part = Literal["learning", "train", "validation", "heldout", "all"]


@dataclass(frozen=True)
class TraceConfig:
    """One run of the trace step; the fields are the options of `mlgo trace`, described by its --help.

    Attributes:
        part: "learning" is train and validation of a corpus with a split and all modules of one without, so that later
            steps do not learn from held-out modules by default.
        sampling_rate: fraction of these modules that is compiled, at least one, chosen by their names and the seed.
    """

    corpus: Path
    toolchain: Path
    output: Path
    problem: str = "inlining"
    part: Part = "learning"
    sampling_rate: float = 1.0
    seed: int = 0
    workers: str = "local"
    timeout_s: float = 120.0
    max_failed_fraction: float = 0.05
    allowed_options: tuple[str, ...] = ()
