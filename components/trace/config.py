"""What a run of the trace step is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Part = Literal["learning", "train", "validation", "heldout", "all"]


@dataclass(frozen=True)
class TraceConfig:
    """corpus, toolchain: input artifacts. output: the trace. part: which modules; "learning" is train and validation of
    a corpus that is split and all of one that is not, so that nothing later can learn from held-out modules unasked.
    timeout_s: of one module. max_failed_fraction: more failing modules stop the step. allowed_options: recorded options
    that are replayed though they are refused otherwise."""

    corpus: Path
    toolchain: Path
    output: Path
    problem: str = "inlining"
    part: Part = "learning"
    workers: str = "local"
    timeout_s: float = 120.0
    max_failed_fraction: float = 0.05
    allowed_options: tuple[str, ...] = ()
