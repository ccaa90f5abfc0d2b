"""What a verdict claims, and whether the measurements show it.

There are two statements. What was measured is exact: these files, by both compilers. What it says of other code is an
estimate with an interval (components/core/objectives/estimate.py). A verdict claims one of these:

- other projects, if all held-out modules are of projects that are held out as a whole, otherwise other modules of the
  measured projects: "better" if the measured reduction and that of the target are at least the required one and the
  interval of the target has gains only, "not better" if the measured reduction is less, or the interval of the target
  or that of other projects has losses only, otherwise "not shown";
- the user's own program as built, where its files were linked by both compilers: their reduction decides, because they
  are what is shipped.

Trained, fine-tuned and pretrained policies are held to the same rule. Imports nothing heavy, as terminal_report.py.
"""

from __future__ import annotations

from msgspec import UNSET

from components.core.objectives.estimate import Estimate, Interval
from components.evaluation.metrics_types import Metrics, ScoreComparison, SizeComparison, SizeMetrics, Verdict
from components.evaluation.report.formatting import beside

Compared = SizeComparison | ScoreComparison


def claimed(compared: Compared) -> Estimate | None:
    """Return the estimate of the target that a verdict claims; None if there is nothing to compare.

    What was held out decides, not what is shown: a claim that is chosen by its interval is not one of its level.
    """
    return compared.other_projects if compared.of_unseen_projects else compared.other_modules


def claimed_interval(compared: Compared) -> Interval | None:
    estimate = claimed(compared)
    return None if estimate is None else estimate.interval95


def reaches(compared: Compared, required_percent: float) -> bool:
    """Return whether the measured reduction is the required one; none at all is, if a growth is accepted."""
    reduction = compared.reduction_percent
    return reduction is not None and reduction >= required_percent and not reduction <= 0 <= required_percent


def verdict_on(compared: Compared, required_percent: float) -> Verdict:
    """Return the verdict by the values of held-out modules alone."""
    if not reaches(compared, required_percent):
        return "not better"
    estimate = claimed(compared)
    if estimate is None or estimate.interval95 is None:
        return "not shown"
    # Whoever accepts a growth by a negative requirement has it shown that it is no larger.
    (low, _high), accepted = estimate.interval95, min(0.0, required_percent)
    if _loses(compared, accepted) is not None:
        return "not better"
    return "better" if low > accepted and estimate.reduction_percent >= required_percent else "not shown"


def _loses(compared: Compared, accepted_percent: float) -> Estimate | None:
    """Return the estimate of code that surely becomes larger, by more than is accepted; None without one."""
    estimates = (claimed(compared), compared.other_projects)
    intervals = ((known, known.interval95) for known in estimates if known is not None)
    return next((known for known, bounds in intervals if bounds is not None and bounds[1] < accepted_percent), None)


def why_not_shown(compared: Compared, required_percent: float) -> str:
    """Return why a measured reduction, at least the required one, does not show a gain on other code."""
    estimate = claimed(compared)
    if estimate is None:  # metrics of earlier versions
        return "its gain on other code was not estimated"
    if estimate.interval95 is None:
        return estimate.why_no_interval
    (low, _high), accepted = estimate.interval95, min(0.0, required_percent)
    if (worse := _loses(compared, accepted)) is not None:
        return f"it is worse on {worse.target}"
    if low > accepted:
        gain = f"{beside(estimate.reduction_percent, required_percent)}%"
        return f"{estimate.target} gain {gain} by estimate, less than the required {required_percent:g}%"
    return f"{estimate.target} may " + (f"lose more than {-accepted:g}%" if accepted else "gain nothing")


def judges_own_build(metrics: Metrics) -> bool:
    return isinstance(metrics, SizeMetrics) and metrics.judged_by == "linked" and metrics.own_build is not UNSET
