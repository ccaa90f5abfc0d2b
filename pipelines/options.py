"""What the user asks of a whole run on this machine, and the pipeline's parameters that say the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.console import UserError
from pipelines.checks import as_option, check_values


@dataclass(frozen=True)
class RunOptions:
    """One run.

    Invariants: exactly one of compile_commands, corpus and recipe is set; paths are absolute; preset is one of PRESETS;
    train_minutes, if set, replaces the preset's; with_policy is one of another problem than `problem`;
    start_from is "heuristic", "pretrained", or names a policy; tune_minutes, if set, is of a search for a plan.
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
    min_reduction_percent: float | None = None
    max_slowdown_percent: float | None = None
    with_policy: Path | None = None
    start_from: str = "heuristic"
    tune_minutes: float | None = None

    def __post_init__(self) -> None:
        check_values(self.parameters(), as_option)
        for source in (self.compile_commands, self.corpus, self.recipe):
            if source is not None and not source.exists():
                raise UserError(f"{source} does not exist", "check the path")

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
            "min_reduction_percent": "" if self.min_reduction_percent is None else f"{self.min_reduction_percent:g}",
            "max_slowdown_percent": "" if self.max_slowdown_percent is None else f"{self.max_slowdown_percent:g}",
            "release_if": "always",
            "with_policy": str(self.with_policy or ""),
            "start_from": self.start_from,
            "tune_minutes": "" if self.tune_minutes is None else f"{self.tune_minutes:g}",
        }
