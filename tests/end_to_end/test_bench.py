"""Tests that benchmarks run on the tiny run and return their figures. Their values need an idle machine.

`python -m tests.bench --small` runs the parts that take minutes even so, too.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.bench.__main__ import part_names
from tests.bench.context import SMALL, BenchContext
from tests.bench.goals import GOALS
from tests.bench.isolated import measure_alone

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

FIGURES = {
    "checkpoint": {"checkpoint_over_unflushed"},
    "corpus": {"extract_speedup_over_mlgo_utils"},
    "credit": {"credit_r2_unseen_modules", "credit_error_percent"},
    "policy": {"emitted_policy_us_per_decision"},
    "ppo": {"ppo_overhead"},
    "program": {"program_over_stock_lto", "program_smallest_over_stock_lto"},
    "ray": {"ray_overhead_ms_per_module", "ray_slots_busy_512", "ray_over_local_iteration"},
    "ray_training": {"ray_training_busy_512"},
    "release": {"release_compile_overhead_percent"},
    "toolchain": {
        "training_clang_s",
        "release_clang_s",
        "release_clang_growth_bytes",
        "release_peak_memory_growth_kib",
    },
    "trace": {"trace_over_plain_compile", "regalloc_trace_over_plain_compile"},
    "verdicts": {
        "false_better_other_projects_percent",
        "false_better_other_modules_percent",
        "coverage_other_projects_percent",
        "coverage_other_modules_percent",
        "coverage_real_packages_percent",
        "power_5_spread_2_percent",
        "choice_of_equal_policies_percent",
        "wrong_choice_for_few_projects_percent",
        "false_promotion_percent",
        "useless_first_deployment_percent",
        "wrong_promotion_for_few_projects_percent",
    },
    "warmstart": {"warmstart_decisions_per_s", "warmstart_agreement"},
}
"""Figures with a goal, of a run whose problem is inlining."""
MINUTES = {"credit", "ppo", "program", "ray", "ray_training", "release", "toolchain"}


def test_every_goal_is_a_figure_of_a_benchmark() -> None:
    assert set(FIGURES) == set(part_names())
    of_regalloc = {f"regalloc_{key}" for keys in FIGURES.values() for key in keys}
    measured = {key for keys in FIGURES.values() for key in keys}
    goals = {goal.key for goal in GOALS}
    assert measured <= goals <= measured | of_regalloc


@pytest.mark.parametrize("part", sorted(FIGURES.keys() - MINUTES))
def test_benchmark_returns_its_figures(part: str, finished: tuple[Path, str], tmp_path: Path) -> None:
    figures = measure_alone(part, BenchContext(finished[0], tmp_path, **SMALL))
    assert FIGURES[part] <= set(figures)
    assert all(map(math.isfinite, figures.values()))
