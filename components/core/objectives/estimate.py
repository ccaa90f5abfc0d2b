"""What a measurement says of code that was not measured: an estimate with its interval, unit and target.

The interval is `reduction ± t · SE`. SE is the jackknife's standard error: each unit (module or project) is left out
once, so that units weigh as much as they do in the reduction (Efron and Stein 1981, doi:10.1214/aos/1176345462). The
quantile is Student's with n' - 1 degrees of freedom; n' = (Σw)² / Σw² is the effective number of units of weights w
(Kish 1965, "Survey Sampling"): where one project is half of the bytes, twelve projects say as much as four. With
n - 1 in place of n' - 1, 95% intervals hold in 91% of cases and not in 95% (`make bench`, part verdicts).
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from components.core.objectives.objective import Float64, Objective

Interval = tuple[float, float]
Target = Literal["other modules of these projects", "other code of these projects", "other projects like these"]
MODULES: Target = "other modules of these projects"
CODE: Target = "other code of these projects"
"""As MODULES, but what differs by project may change, too: for two policies that are compared again and again."""
PROJECTS: Target = "other projects like these"
UNITS: dict[Target, str] = {MODULES: "module", CODE: "project", PROJECTS: "project"}
LEAST_UNITS: dict[Target, int] = {MODULES: 2, CODE: 5, PROJECTS: 5}
"""Fewer of them have no interval: how much projects differ cannot be told from four."""
LEVEL = 0.95


class Estimate(Struct, kw_only=True, frozen=True):
    """A reduction that is estimated for code that was not measured.

    Attributes:
        target: the code that it is for.
        units: number of modules, or of projects, that were measured and have a baseline. Copies of a source are one.
        reduction_percent: positive is better.
        standard_error: of `reduction_percent`, in points; None for too few units.
        degrees_of_freedom: of Student's t; None for too few units.
        interval95: the 95% interval in percent; None for too few units.
    """

    target: Target
    units: int
    reduction_percent: float
    standard_error: float | None = None
    degrees_of_freedom: float | None = None
    interval95: Interval | None = None

    def interval(self, level: float) -> Interval | None:
        """Return the interval of a level between 0 and 1; None for too few units."""
        if self.standard_error is None or self.degrees_of_freedom is None:
            return None
        reach = students_t(self.degrees_of_freedom, level) * self.standard_error
        # Nothing becomes smaller than nothing: few units would have an interval beyond.
        return self.reduction_percent - reach, min(100.0, self.reduction_percent + reach)

    def direction(self, level: float = LEVEL) -> int:
        """Return 1 if the interval of this level has gains only, -1 if it has losses only, else 0."""
        bounds = self.interval95 if level == LEVEL else self.interval(level)
        return 0 if bounds is None else 1 if bounds[0] > 0 else -1 if bounds[1] < 0 else 0

    @property
    def unit(self) -> str:
        """What varies: "module" or "project"."""
        return UNITS[self.target]

    @property
    def why_no_interval(self) -> str:
        """Why there is no interval, "" if there is one."""
        if self.interval95 is not None:
            return ""
        count = f"{self.units} {self.unit}{'' if self.units == 1 else 's'}"
        return f"{count} cannot tell how {self.unit}s differ: it takes {LEAST_UNITS[self.target]}"


def estimate(
    objective: Objective, target: Target, baseline: Float64, other: Float64, unit: NDArray[np.int64]
) -> Estimate | None:
    """Return what the values of measured cases say of the target; None if there is nothing to compare.

    Args:
        baseline, other: [N], values of the same cases; smaller is better.
        unit: [N], the module or project of each case.
    """
    import numpy as np

    reduction = objective.reduction(baseline, other)
    if reduction is None:
        return None
    without, weights = objective.without_each(baseline, other, unit)
    units = int(np.count_nonzero(weights))
    known = Estimate(target=target, units=units, reduction_percent=100.0 * reduction)
    if units < LEAST_UNITS[target]:
        return known
    count, share = weights.size, weights / weights.sum()
    variance = (count - 1) / count * float(np.square(without - without.mean()).sum())
    freedom = max(1.0, 1.0 / float(np.square(share).sum()) - 1.0)
    known = replace(known, standard_error=100.0 * variance**0.5, degrees_of_freedom=freedom)
    return replace(known, interval95=known.interval(LEVEL))


def students_t(freedom: float, level: float) -> float:
    """Return the t that |T| of Student's distribution exceeds with probability 1 - `level`.

    With T = √ν sinh X, the density of X is proportional to cosh(X)^-ν. It is log-concave, and so is its tail: Newton's
    method on the tail's logarithm converges from anywhere. (SciPy, which has this function, is 100 MB of each image.)

    Args:
        freedom: degrees of freedom ν, 1 or more; need not be whole.
        level: above 0 and below 1.
    """
    import numpy as np

    nodes, weights = _nodes_and_weights()
    half, x = 0.5 * freedom, 0.0
    constant = math.log(2 / math.sqrt(math.pi)) + math.lgamma(half + 0.5) - math.lgamma(half)
    for _ in range(100):
        width = math.acosh(math.cosh(x) * math.exp(40 / freedom)) - x  # beyond it, the density is e^-40 of that at x
        ratios = (math.cosh(x) / np.cosh(x + 0.5 * width * (nodes + 1))) ** freedom
        mills = 0.5 * width * float(weights @ ratios)  # the tail by the density
        surplus = constant - freedom * math.log(math.cosh(x)) + math.log(mills) - math.log1p(-level)
        x += surplus * mills
        if abs(surplus) < 1e-12:
            break
    return math.sqrt(freedom) * math.sinh(x)


@cache
def _nodes_and_weights() -> tuple[Float64, Float64]:
    """Return Gauss and Legendre's rule for an integral from -1 to 1."""
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(64)  # type: ignore[no-untyped-call]
    return nodes, weights


def ratios_without_each(numerators: Float64, denominators: Float64, unit: NDArray[np.int64]) -> tuple[Float64, Float64]:
    """Return the ratio of the sums without each unit, and the denominator of each unit, both [U].

    Units whose sums are 0 are left out. If fewer than two have another denominator, the ratios are NaN.

    Args:
        numerators, denominators: [N]. unit: [N], the unit of each.
    """
    import numpy as np

    _, number = np.unique(unit, return_inverse=True)
    above = np.bincount(number, weights=numerators).astype(np.float64)
    below = np.bincount(number, weights=denominators).astype(np.float64)
    kept = (above != 0) | (below > 0)  # a unit without a baseline may still grow
    above, below = above[kept], below[kept]
    if np.count_nonzero(below) < 2:
        return np.full(below.size, np.nan), below
    return (above.sum() - above) / (below.sum() - below), below
