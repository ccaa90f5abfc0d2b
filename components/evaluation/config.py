"""Configuration of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from components.core import problems
from components.core.objectives import OBJECTIVES
from components.core.projects.flags.link_variants import LINK_VARIANTS
from components.platform.errors import UserError
from components.platform.processes.cgroup import available_processors

THRESHOLDS = (0, 5, 15, 30, 50)
"""-inline-threshold values of the sweep: values that a user without a policy would try."""

RELINK = ("yes", "no")
"""Whether the report on a release clang links the user's own programs again, if the corpus knows their links."""

RELEASE_IF = ("better", "always")
"""Verdicts for which the release clang embeds the trained policy. Otherwise it embeds another one, or none is built
(components/evaluation/release_policy.py)."""

MATCHING = "matching"
"""Given instead of a policy to compare with: the pretrained one that could replace the evaluated policy."""


@dataclass(frozen=True)
class EvaluationConfig:
    """One evaluation; the fields are the options of `mlgo evaluation run`, described by its --help.

    Invariants: min_reduction_percent <= 100; 0 <= max_failed_fraction <= 1; thresholds are distinct.

    Attributes:
        compare_with: an artifact, one of PRETRAINED_NAMES or MATCHING; None for no comparison.
        evaluation: an earlier evaluation by the training clang that measured the policy, also as the start of another
            one or as a pretrained one. All its scores are reused, or all its sizes except the policy's: only the
            release clang compiles. None compiles everything.
        trace: the trace of the training, for the functions that held-out modules share with it.
        release_if: one of RELEASE_IF.
        stock_clang: None takes the installed clang of the release clang's version.
        time_repeats: runs of each benchmark with each build for their processor time; 0 takes none.
        relink: one of RELINK.
        benchmark: shell command that runs programs of the user's own build; "" for none.
        flag_rows: names of rows; "all" for every row that needs no permission; () for none.
    """

    corpus: Path
    toolchain: Path
    policy: Path
    output: Path
    release_toolchain: Path | None = None
    warmstart: Path | None = None
    compare_with: Path | str | None = None
    evaluation: Path | None = None
    trace: Path | None = None
    release_if: str = "better"
    ppo_root: Path | None = None
    recipe: Path | None = None
    stock_clang: Path | None = None
    min_reduction_percent: float | None = None
    max_slowdown_percent: float | None = None
    time_repeats: int = 0
    relink: str = "yes"
    benchmark: str = ""
    problem: str = "inlining"
    workers: str = "local"
    timeout_s: float = 60.0
    max_failed_fraction: float = 0.05
    thresholds: tuple[int, ...] = THRESHOLDS
    jobs: int = field(default_factory=available_processors)
    link_variants: tuple[str, ...] = tuple(LINK_VARIANTS)
    flag_rows: tuple[str, ...] = ()
    allowed_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.evaluation is not None and self.release_toolchain is None:
            raise UserError(
                "--evaluation requires --release-toolchain: it completes an evaluation with a release clang",
                "pass --release-toolchain, or leave --evaluation out",
            )
        if self.evaluation is not None and self.compare_with is not None:
            raise UserError(
                "--compare-with cannot be added to an earlier evaluation: only its policy is compiled again",
                "leave --compare-with out: the comparison of the earlier evaluation is kept",
            )
        if self.recipe is not None and self.release_toolchain is None:
            raise UserError(
                "--recipe requires --release-toolchain: it builds projects with the release clang",
                "pass --release-toolchain, or leave --recipe out",
            )

        if self.flag_rows and (
            self.recipe is None or OBJECTIVES[problems.get(self.problem).objective].recipe_field != "binaries"
        ):
            raise UserError(
                "--flag-rows requires --recipe and a size problem: it builds the recipe's programs for size",
                "pass --recipe, or leave --flag-rows out",
            )
        if self.benchmark and (self.recipe is not None or self.release_toolchain is None):
            raise UserError(
                "--benchmark requires --release-toolchain, and no --recipe: it runs programs of your own build",
                "leave --benchmark out, or describe benchmarks in the recipe",
            )
        if self.benchmark and self.relink == "no":
            raise UserError(
                "--benchmark runs the programs of your own build, which --relink no does not link",
                "leave one of the two options out",
            )
        if self.relink == "no" and self.recipe is not None:
            raise UserError(
                "--relink no is for your own build: the programs of a recipe are built, not linked again",
                "leave --relink out",
            )
        runs_programs = self.recipe is not None or bool(self.benchmark)
        if self.max_slowdown_percent is not None and not runs_programs:
            raise UserError(
                "--max-slowdown-percent requires --recipe or --benchmark: it limits the slowdown of benchmarks",
                "pass one of them, or leave --max-slowdown-percent out",
            )
        if self.time_repeats and not runs_programs:
            raise UserError(
                "--time-repeats requires --recipe or --benchmark: it takes the time of benchmarks",
                "pass one of them, or leave --time-repeats out",
            )
        if self.max_slowdown_percent is not None and OBJECTIVES[problems.get(self.problem).objective].programs_decide:
            raise UserError(
                f"--max-slowdown-percent is only for size problems; a policy for {self.problem} is never better if "
                "programs execute more instructions",
                "leave --max-slowdown-percent out",
            )

    @property
    def required_percent(self) -> float:
        """min_reduction_percent, or the problem's default."""
        if self.min_reduction_percent is None:
            return problems.get(self.problem).min_reduction_percent
        return self.min_reduction_percent
