"""What an evaluation reads, does and is judged by."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from components.core import problems
from components.core.console import UserError
from components.evaluation.projects.link_variants import LINK_VARIANTS

THRESHOLDS = (0, 5, 15, 30, 50)
"""-inline-threshold values of the sweep: what a user would try without a policy."""


RELEASE_IF = ("better", "always")
"""Which verdict wants a release clang."""


@dataclass(frozen=True)
class EvaluationConfig:
    """One evaluation.

    Invariants: min_reduction_percent <= 100; 0 <= max_failed_fraction <= 1; thresholds are distinct.

    Attributes:
        corpus: the corpus with its splits.json; its held-out part is compiled.
        toolchain: the training clang: baseline, warmstart and sweep, and of scores the policy as well.
        policy: the policy artifact that is judged.
        output: where report.csv, metrics.json and report.html go.
        release_toolchain: the release clang that embeds the policy: compiles the modules for their sizes, and builds
            the projects of `recipe`. None has the training clang run the policy.
        warmstart: the warmstart policy artifact, to be compared; None leaves it out.
        evaluation: an earlier evaluation of the same policy by the training clang: its scores are taken over, or its
            sizes of all but the policy, for which only the release clang compiles. None compiles everything.
        release_if: of RELEASE_IF.
        ppo_root: where the training wrote its TensorBoard events; None looks into the policy artifact.
        recipe: rebuilds the held-out projects of these recipes whole and compares the linked binaries or, of a problem
            that is judged by scores, the instructions that their benchmarks execute; None does neither.
        stock_clang: builds their baseline; None takes the installed clang of the release clang's version.
        min_reduction_percent: from this reduction of the held-out text or scores on, the verdict is "better"; None asks
            for what the problem does.
        max_slowdown_percent: of a problem that is judged by size; the verdict is "not better" if the benchmarks of the
            projects of `recipe` execute so many percent more instructions in sum; None allows any number.
        problem: name of the optimization problem.
        workers: where compiles run, as `components.core.workers.factory` reads it.
        timeout_s: of one compile.
        max_failed_fraction: more failed modules than this stop the evaluation.
        thresholds: the sweep of a problem that is judged by size.
        seed: of the bootstrap intervals.
        jobs: compiles at a time in whole builds.
        link_variants: names of LINK_VARIANTS, in which whole projects are linked.
        allowed_options: recorded options of modules that are replayed though they are refused otherwise.
    """

    corpus: Path
    toolchain: Path
    policy: Path
    output: Path
    release_toolchain: Path | None = None
    warmstart: Path | None = None
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
    jobs: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    link_variants: tuple[str, ...] = tuple(LINK_VARIANTS)
    allowed_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.wanted_percent > 100:
            raise UserError(
                f"--min-reduction-percent {self.wanted_percent:g}: nothing shrinks by more than 100%",
                "give a number of percent such as 0.5",
            )
        if self.evaluation is not None and self.release_toolchain is None:
            raise UserError(
                "--evaluation is there to be completed by what a release clang makes, and none is given",
                "pass --release-toolchain, or leave --evaluation out",
            )
        if self.recipe is not None and self.release_toolchain is None:
            raise UserError(
                "--recipe rebuilds projects with the release clang, and none is given",
                "pass --release-toolchain, or leave --recipe out",
            )

        if self.max_slowdown_percent is not None and self.recipe is None:
            raise UserError(
                "--max-slowdown-percent speaks of the benchmarks of a recipe, and none is given",
                "pass --recipe, or leave --max-slowdown-percent out",
            )
        if self.max_slowdown_percent is not None and problems.get(self.problem).objective != "size":
            raise UserError(
                f"--max-slowdown-percent is for problems that are judged by size; programs that execute more under a "
                f"policy for {self.problem} are never better",
                "leave it out",
            )

    @property
    def wanted_percent(self) -> float:
        """min_reduction_percent, or what the problem asks for."""
        if self.min_reduction_percent is None:
            return problems.get(self.problem).min_reduction_percent
        return self.min_reduction_percent
