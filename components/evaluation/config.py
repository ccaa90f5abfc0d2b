"""Configuration of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def check_programs(
    write: Callable[[str, object], str],
    problem: str,
    has_recipe: bool,
    max_slowdown_percent: float | None,
    time_repeats: int,
    relink: str,
    benchmark: str,
    flag_rows: Sequence[str] | None,
) -> None:
    """Raise UserError if options about programs contradict each other, or do not apply to the problem.

    Args:
        write: writes an option with its value, as the user gave it.
    """
    objective = OBJECTIVES[problems.get(problem).objective]
    no_benchmarks = "" if has_recipe or benchmark else "there are no benchmarks without a recipe"
    or_benchmark = f"name a recipe, or {write('benchmark', 'COMMAND')} of your build"
    if max_slowdown_percent is not None:
        option = write("max_slowdown_percent", f"{max_slowdown_percent:g}")
        if objective.programs_decide:
            raise UserError(f"{option}: not applicable to {problem}", f"leave {write('max_slowdown_percent', '')} out")
        if no_benchmarks:
            raise UserError(
                f"{option}: {no_benchmarks}", f"leave {write('max_slowdown_percent', '')} out, or {or_benchmark}"
            )
    if time_repeats and no_benchmarks:
        raise UserError(
            f"{write('time_repeats', time_repeats)}: {no_benchmarks}",
            f"leave {write('time_repeats', '')} out, {or_benchmark}",
        )
    if benchmark and relink == "no":
        raise UserError(
            f"{write('benchmark', benchmark)}: it runs the programs that {write('relink', 'no')} does not link",
            f"leave {write('benchmark', '')} or {write('relink', 'no')} out",
        )
    if benchmark and has_recipe:
        raise UserError(
            f"{write('benchmark', benchmark)}: a recipe names the benchmarks of its projects",
            f"leave {write('benchmark', '')} out, or write `benchmarks` into the recipe",
        )
    if relink == "no" and has_recipe:
        raise UserError(
            f"{write('relink', 'no')}: the programs of a recipe are built, not linked again",
            f"leave {write('relink', '')} out",
        )
    if flag_rows and not (has_recipe and objective.recipe_field == "binaries"):
        raise UserError(
            f"{write('flag_rows', ','.join(flag_rows))}: programs of a recipe are linked under rows of flags, for size",
            f"leave {write('flag_rows', '')} out, or name a recipe",
        )


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
        if self.benchmark and self.release_toolchain is None:
            raise UserError(
                "--benchmark requires --release-toolchain: it runs programs of your own build",
                "pass --release-toolchain, or leave --benchmark out",
            )
        check_programs(
            lambda name, value: f"--{name.replace('_', '-')} {value}".rstrip(),
            self.problem,
            self.recipe is not None,
            self.max_slowdown_percent,
            self.time_repeats,
            self.relink,
            self.benchmark,
            self.flag_rows,
        )

    @property
    def required_percent(self) -> float:
        """min_reduction_percent, or the problem's default."""
        if self.min_reduction_percent is None:
            return problems.get(self.problem).min_reduction_percent
        return self.min_reduction_percent
