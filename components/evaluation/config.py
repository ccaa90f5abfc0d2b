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

RELEASE_IF = ("better", "always")
"""Verdicts for which the release clang embeds the trained policy. Otherwise it embeds another one, or none is built
(components/evaluation/release_policy.py)."""

MATCHING = "matching"
"""Given instead of a policy to compare with: the pretrained one that could replace the evaluated policy."""


@dataclass(frozen=True)
class EvaluationConfig:
    """One evaluation.

    Invariants: min_reduction_percent <= 100; 0 <= max_failed_fraction <= 1; thresholds are distinct.

    Attributes:
        corpus: corpus with a splits.json; its held-out modules are compiled.
        toolchain: training clang: compiles baseline, warmstart and sweep, and for scores the policy, too.
        policy: policy artifact to evaluate.
        output: directory for report.csv, metrics.json and report.html.
        release_toolchain: release clang that embeds the policy: compiles the modules for their sizes, and builds the
            projects of `recipe`. None: the training clang runs the policy.
        warmstart: warmstart policy artifact to compare with; None for no comparison.
        compare_with: another policy to compare with: an artifact, one of PRETRAINED_NAMES or MATCHING; None for none.
        evaluation: an earlier evaluation by the training clang that measured the policy, also as the start of another
            one or as a pretrained one. All its scores are reused, or all its sizes except the policy's: only the
            release clang compiles. None compiles everything.
        release_if: one of RELEASE_IF.
        ppo_root: root directory of the training, for its curve; None looks in the policy artifact.
        recipe: builds the held-out projects of these recipes whole and compares the instructions that their benchmarks
            execute and, for size problems, the linked binaries; None does neither.
        stock_clang: builds their baseline; None takes the installed clang of the release clang's version.
        min_reduction_percent: minimum reduction of the held-out text or scores for the verdict "better"; None takes the
            problem's default.
        max_slowdown_percent: for size problems: the verdict is "not better" if the benchmarks of the projects of
            `recipe` execute in sum more additional instructions than this percentage; None for no limit.
        problem: name of the optimization problem.
        workers: where compiles run, as `components.platform.workers.factory` reads it.
        timeout_s: time limit of one compile.
        max_failed_fraction: the evaluation stops if more than this fraction of the modules fails.
        thresholds: the sweep, for size problems.
        seed: seed of the bootstrap intervals.
        jobs: parallel compiles in whole builds.
        link_variants: names in LINK_VARIANTS; whole projects are linked in each of them.
        flag_rows: names of rows of flags under which the programs of `recipe` are also built; "all" for every row that
            needs no permission; () for none.
        allowed_options: recorded options of modules that are replayed although they are refused by default.
    """

    corpus: Path
    toolchain: Path
    policy: Path
    output: Path
    release_toolchain: Path | None = None
    warmstart: Path | None = None
    compare_with: Path | str | None = None
    evaluation: Path | None = None
    release_if: str = "better"
    ppo_root: Path | None = None
    recipe: Path | None = None
    stock_clang: Path | None = None
    min_reduction_percent: float | None = None
    max_slowdown_percent: float | None = None
    problem: str = "inlining"
    workers: str = "local"
    timeout_s: float = 60.0
    max_failed_fraction: float = 0.05
    thresholds: tuple[int, ...] = THRESHOLDS
    seed: int = 0
    jobs: int = field(default_factory=available_processors)
    link_variants: tuple[str, ...] = tuple(LINK_VARIANTS)
    flag_rows: tuple[str, ...] = ()
    allowed_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.required_percent > 100:
            raise UserError(
                f"--min-reduction-percent {self.required_percent:g} is more than 100%",
                "pass a percentage such as 0.5",
            )
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
        if self.max_slowdown_percent is not None and self.recipe is None:
            raise UserError(
                "--max-slowdown-percent requires --recipe: it limits the slowdown of the recipe's benchmarks",
                "pass --recipe, or leave --max-slowdown-percent out",
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
