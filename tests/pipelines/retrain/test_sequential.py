"""Tests of the correction for weekly comparisons, by simulation; docs/retraining.md has the rates of 2000 series."""

from __future__ import annotations

import pytest

from tests.pipelines.retrain.false_promotions import RULES, false_promotion_rates


@pytest.mark.parametrize(
    ("modules", "documented"),
    [(30, (0.54, 0.12, 0.12)), (100, (0.43, 0.05, 0.11))],
)
def test_equal_policies_are_promoted_as_rarely_as_documented(modules: int, documented: tuple[float, ...]) -> None:
    rates = false_promotion_rates(modules, series=200, seed=1)
    assert [rates[rule] for rule in RULES] == pytest.approx(documented, abs=0.1), rates
    assert max(rates["spending"], rates["rotation"]) < rates["interval"] / 2, rates


def test_few_modules_are_not_rotated() -> None:
    rates = false_promotion_rates(modules=20, series=50, seed=1)
    assert rates["rotation"] == pytest.approx(rates["spending"], abs=0.08), "the same modules, other bootstraps"
