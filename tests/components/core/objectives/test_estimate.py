"""Coverage, bounds and missing intervals of estimates for code that was not measured."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.objectives import SCORE, SIZE, Objective
from components.core.objectives.estimate import MODULES, PROJECTS, Estimate, Target, estimate, students_t
from components.core.objectives.size import bytes_kept

UNITS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 3)), min_size=1, max_size=12)


def known(target: Target, baseline: np.ndarray, other: np.ndarray, unit: np.ndarray | None = None) -> Estimate:
    unit = np.arange(baseline.size) if unit is None else unit
    result = estimate(SIZE, target, baseline, other, unit)
    assert result is not None
    return result


def test_equal_changes_have_an_interval_of_zero_width() -> None:
    baseline = np.array([100, 2000, 30000])
    result = known(MODULES, baseline, baseline * 9 // 10)
    assert result.interval95 == pytest.approx((10.0, 10.0)) and result.direction() == 1
    assert known(MODULES, baseline, baseline).direction() == 0


def test_one_large_project_leaves_fewer_degrees_of_freedom() -> None:
    """Twelve projects of which one is half of the bytes say less than twelve equal ones."""
    equal, half = np.full(12, 1000), np.array([11_000, *[1000] * 11])
    assert known(PROJECTS, equal, equal).degrees_of_freedom == pytest.approx(11)
    assert known(PROJECTS, half, half).degrees_of_freedom == pytest.approx(1 / (1 / 4 + 1 / 44) - 1)


@pytest.mark.parametrize(("projects", "spread"), [(8, 2.0), (25, 7.0)])
def test_interval_for_other_projects_has_its_level(projects: int, spread: float) -> None:
    """Projects differ by `spread` points, and their sizes by 1.5 in logarithm. Resampled modules hold it in 50%."""
    generator = np.random.default_rng(projects)
    covered = 0
    for _ in range(300):
        unit = np.repeat(np.arange(projects), 12)
        sizes = np.exp(generator.standard_normal(projects))[unit] * np.exp(generator.standard_normal(unit.size)) * 1e5
        percent = 1.0 + spread * generator.standard_normal(projects)[unit] + 3 * generator.standard_normal(unit.size)
        low, high = known(PROJECTS, sizes, sizes * (1 - percent / 100), unit).interval95 or (0, 0)
        covered += low <= 1.0 <= high
    assert 0.92 <= covered / 300 <= 0.99


def test_interval_for_other_modules_has_its_level() -> None:
    generator = np.random.default_rng(3)
    covered = 0
    for _ in range(300):
        baseline = np.exp(1.5 * generator.standard_normal(30)) * 4000
        other = baseline * (1 - generator.normal(0.02, 0.05, 30))
        low, high = known(MODULES, baseline, other).interval95 or (0, 0)
        covered += low <= 2.0 <= high
    assert 0.92 <= covered / 300 <= 0.99


def test_copies_of_a_source_are_one_unit() -> None:
    """40 sources compiled 50 times each say as much as 40 modules, not as 2000."""
    generator = np.random.default_rng(4)
    sizes = generator.integers(1_000, 5_000, 40)
    other = np.round(sizes * generator.normal(0.98, 0.05, 40))
    once = known(MODULES, sizes, other)
    copies = known(MODULES, np.repeat(sizes, 50), np.repeat(other, 50), np.repeat(np.arange(40), 50))
    assert copies.interval95 == pytest.approx(once.interval95) and copies.units == 40
    independent = known(MODULES, np.repeat(sizes, 50), np.repeat(other, 50))
    assert independent.standard_error is not None and once.standard_error is not None
    assert once.standard_error > 5 * independent.standard_error


@pytest.mark.parametrize(
    ("target", "units", "why"),
    [
        (MODULES, 1, "1 module cannot tell how modules differ: it takes 2"),
        (PROJECTS, 4, "4 projects cannot tell how projects differ: it takes 5"),
    ],
)
def test_too_few_units_have_no_interval_but_a_reason(target: Target, units: int, why: str) -> None:
    result = known(target, np.full(units, 100), np.full(units, 90))
    assert result.interval95 is None and result.why_no_interval == why and result.direction() == 0
    assert result.reduction_percent == pytest.approx(10)
    enough = known(target, np.full(units + 1, 100), np.full(units + 1, 90))
    assert enough.interval95 is not None and enough.why_no_interval == ""


@pytest.mark.parametrize("objective", [SIZE, SCORE])
@given(rows=UNITS)
def test_bounds_are_finite_and_hold_the_estimate(objective: Objective, rows: list[tuple[int, int, int]]) -> None:
    baseline, other, unit = (np.array(column) for column in zip(*rows, strict=True))
    result = estimate(objective, MODULES, baseline, other, unit)
    if result is None:
        assert baseline.sum() == 0
    elif result.interval95 is not None:
        low, high = result.interval95
        assert np.isfinite([low, high]).all() and low <= result.reduction_percent <= high
        wider = result.interval(0.99)
        assert wider is not None and wider[0] <= low and wider[1] >= high


@pytest.mark.parametrize(
    ("freedom", "level", "quantile"),
    [(5, 0.95, 2.5705818), (10, 0.9, 1.8124611), (10, 0.99, 3.1692727), (30, 0.95, 2.0422725), (1e9, 0.95, 1.9599640)],
)
def test_quantiles_of_students_t(freedom: float, level: float, quantile: float) -> None:
    assert students_t(freedom, level) == pytest.approx(quantile, rel=1e-7)


@given(level=st.floats(0.01, 1 - 1e-10))
def test_quantiles_of_students_t_that_have_closed_forms(level: float) -> None:
    assert students_t(1, level) == pytest.approx(math.tan(0.5 * math.pi * level), rel=1e-4)
    assert students_t(2, level) == pytest.approx(level * math.sqrt(2 / (1 - level * level)), rel=1e-4)


@given(freedom=st.floats(1, 1e5), level=st.floats(0.01, 1 - 1e-10), share=st.floats(0.01, 1))
def test_quantiles_grow_with_the_level_and_fall_with_the_degrees_of_freedom(
    freedom: float, level: float, share: float
) -> None:
    quantile = students_t(freedom, level)
    assert students_t(freedom, share * level) <= quantile * (1 + 1e-6)
    assert students_t(freedom * (1 + share), level) <= quantile * (1 + 1e-6)


def test_nothing_becomes_smaller_than_nothing() -> None:
    """Two modules have a quantile of 12.7."""
    known = estimate(SIZE, MODULES, np.array([1000.0, 1000.0]), np.array([900.0, 500.0]), np.arange(2))
    assert known is not None and known.interval95 is not None
    assert known.interval95[0] < -100 and known.interval95[1] == 100


def test_shared_functions_count_by_the_share_that_the_link_keeps() -> None:
    assert bytes_kept(100, {"own": 10, "in_two": 20, "in_four": 40}, {"in_two": 2, "in_four": 4, "elsewhere": 3}) == 60
    assert bytes_kept(100, {"own": 10}, {}) == 100
