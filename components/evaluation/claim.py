"""What a verdict claims, and whether the measurements show it.

There are two statements. What was measured is exact: these files, by both compilers. What it says of other code is an
estimate with an interval (components/core/objectives/estimate.py). A verdict claims one of these:

- other projects, if at least five projects are held out as a whole, otherwise other modules of the measured projects:
  "better" if the measured reduction is the required one and the interval of the target has gains only, "not shown" if
  it is the required one and the interval does not, "not better" if it is not the required one;
- the user's own program as built, where its files were linked by both compilers: their reduction decides, because they
  are what is shipped.

Trained, fine-tuned and pretrained policies are held to the same rule. Imports nothing heavy, as terminal_report.py.
"""

from __future__ import annotations

from msgspec import UNSET

from components.core.objectives.estimate import Estimate
from components.evaluation.metrics_types import Metrics, ScoreComparison, SizeComparison, SizeMetrics, Verdict
from components.evaluation.report.formatting import interval_in_words

Compared = SizeComparison | ScoreComparison


def claimed(compared: Compared) -> Estimate | None:
    """Return the estimate of the target that a verdict claims; None if there is nothing to compare."""
    projects = compared.other_projects
    return projects if projects is not None and projects.interval95 is not None else compared.other_modules


def verdict_on(compared: Compared, required_percent: float) -> Verdict:
    """Return the verdict by the values of held-out modules alone."""
    reduction, estimate = compared.reduction_percent, claimed(compared)
    if reduction is None or reduction < required_percent:
        return "not better"
    bounds = None if estimate is None else estimate.interval95
    # Whoever accepts a growth by a negative requirement has it shown that it is no larger.
    return "better" if bounds is not None and bounds[0] > min(0.0, required_percent) else "not shown"


def why_not_shown(compared: Compared) -> str:
    """Return why a measured reduction does not show a gain on other code."""
    estimate = claimed(compared)
    if estimate is None:  # metrics of earlier versions
        return "what it says of other code was not estimated"
    if estimate.interval95 is None:
        return estimate.why_no_interval
    bounds = interval_in_words(estimate.interval95).removeprefix(", ")
    return f"{estimate.target} may gain nothing ({bounds}, by {estimate.units} {estimate.unit}s)"


def judges_own_build(metrics: Metrics) -> bool:
    """Return whether the verdict is on the linked files of the user's own build."""
    return isinstance(metrics, SizeMetrics) and metrics.judged_by == "linked" and metrics.own_build is not UNSET
