"""What the user asks of a whole run on this machine, and the pipeline's parameters that say the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.console import PRESETS, UserError
from components.workers.make import check_workers


@dataclass(frozen=True)
class RunOptions:
    """One run.

    Invariants: exactly one of compile_commands, corpus and recipe is set; paths are absolute; preset is one of PRESETS;
    train_minutes, if set, replaces the preset's.
    """

    output: Path
    compile_commands: Path | None = None
    corpus: Path | None = None
    recipe: Path | None = None
    preset: str = "demo"
    problem: str = "inlining"
    workers: str = "local"
    llvm_major: int = 19
    llvm_source: str = "deb"
    train_minutes: float | None = None
    seed: int = 1
    min_reduction_percent: float = 0.5

    def __post_init__(self) -> None:
        sources = [s for s in (self.compile_commands, self.corpus, self.recipe) if s is not None]
        if len(sources) != 1:
            raise UserError(
                f"exactly one source of code is needed, {len(sources) or 'none'} given",
                "pass one of --compile-commands FILE, --corpus DIR, --recipe FILE",
            )
        if not sources[0].exists():
            raise UserError(f"{sources[0]} does not exist", "check the path")
        if self.preset not in PRESETS:
            raise UserError(f"there is no preset {self.preset!r}", f"choose one of {', '.join(PRESETS)}")
        if self.train_minutes is not None and self.train_minutes <= 0:
            raise UserError(f"--train-minutes {self.train_minutes:g} is not positive", "pass the minutes to train for")
        # What only a late step would refuse is refused before the first.
        if self.min_reduction_percent > 100:
            raise UserError(
                f"--min-reduction-percent {self.min_reduction_percent:g}: nothing shrinks by more than 100%",
                "give a number of percent such as 0.5",
            )
        check_workers(self.workers)

    def parameters(self) -> dict[str, str]:
        """Of the pipeline (pipelines/training.py), as text. A release clang is made whatever the verdict: who runs this
        by hand wants to see it."""
        return {
            "recipe": str(self.recipe or ""),
            "corpus": str(self.corpus or ""),
            "compile_commands": str(self.compile_commands or ""),
            "problem": self.problem,
            "preset": self.preset,
            "train_minutes": "" if self.train_minutes is None else f"{self.train_minutes:g}",
            "llvm_major": str(self.llvm_major),
            "llvm_source": self.llvm_source,
            "workers": self.workers,
            "seed": str(self.seed),
            "min_reduction_percent": f"{self.min_reduction_percent:g}",
            "release_if": "always",
        }
