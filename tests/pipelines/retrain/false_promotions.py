"""Simulates how often weekly comparisons of equal policies promote one, with and without what sequential.py does.

    python -m tests.pipelines.retrain.false_promotions --series 2000

prints the table of docs/retraining.md. Sizes of modules are lognormal; a policy multiplies the size of each module by
a lognormal factor of its own. All policies have the same distribution of factors, so each promotion is a false one. A
series compares one deployed policy with a new policy in each of 52 weeks.
"""

from __future__ import annotations

from collections.abc import Mapping

import click
import numpy as np

from pipelines.retrain.sequential import ALPHA, rotated, spent_alpha, widened

WEEKS = 52
RESAMPLES = 1000
SIZE_SIGMA = 1.5
"""Standard deviation of the logarithm of modules' sizes; it was 1.48 for the bitcode of a corpus of 795 modules."""
FACTOR_SIGMA = 0.03
"""Standard deviation of the logarithm of a policy's factors. While it is small, gains and intervals scale with it."""
RULES = ("interval", "spending", "rotation")
"""The 95% interval each week, alpha spending on all modules, and alpha spending on the modules of the week."""


def false_promotion_rates(modules: int, series: int, seed: int) -> Mapping[str, float]:
    """Return the fraction of series with a promotion, by rule.

    Args:
        modules: number of held-out modules.
        series: number of series; each has its own deployed policy.
    """
    generator = np.random.default_rng(seed)
    names = [f"m{number}" for number in range(modules)]
    sizes = np.exp(SIZE_SIGMA * generator.standard_normal(modules))
    deployed = sizes * np.exp(FACTOR_SIGMA * generator.standard_normal((series, modules)))
    promoted = {rule: np.zeros(series, bool) for rule in RULES}
    for week in range(1, WEEKS + 1):
        new = sizes * np.exp(FACTOR_SIGMA * generator.standard_normal((series, modules)))
        judging = rotated(names, f"2026-W{week:02}", seed)
        half = np.array([name in judging for name in names])
        for rule, alpha, subset in (
            ("interval", ALPHA, np.ones(modules, bool)),
            ("spending", spent_alpha(week), np.ones(modules, bool)),
            ("rotation", spent_alpha(week), half),
        ):
            promoted[rule] |= _clearly_better(deployed[:, subset], new[:, subset], alpha, generator)
    return {rule: float(is_promoted.mean()) for rule, is_promoted in promoted.items()}


def _clearly_better(old: np.ndarray, new: np.ndarray, alpha: float, generator: np.random.Generator) -> np.ndarray:
    """Return for each series whether the interval of the gain is above 0, as in promote.PolicyComparison.

    Args:
        old, new: float64 [series, modules], sizes.

    Returns:
        bool [series].
    """
    count = old.shape[1]
    weights = generator.multinomial(count, np.full(count, 1 / count), RESAMPLES).T.astype(float)  # a bootstrap
    gains = 100 * (1 - (new @ weights) / (old @ weights))  # [series, RESAMPLES]
    low, high = np.percentile(gains, [2.5, 97.5], axis=1)
    percent = 100 * (1 - new.sum(axis=1) / old.sum(axis=1))
    figures = zip(percent.tolist(), low.tolist(), high.tolist(), strict=True)
    return np.array([widened(gain, (below, above), alpha)[0] > 0 for gain, below, above in figures])


@click.command()
@click.option("--series", type=click.IntRange(min=1), default=120, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
def main(series: int, seed: int) -> None:
    """Print the table of docs/retraining.md."""
    for modules in (30, 100, 400):
        rates = false_promotion_rates(modules, series, seed)
        print(f"| {modules} | " + " | ".join(f"{100 * rates[rule]:.0f}%" for rule in RULES) + " |", flush=True)


if __name__ == "__main__":
    main()
