"""Says what to do after a forecast."""

from __future__ import annotations

from components.forecast.types import SMALLEST_SAMPLE, Forecast, percent_text

TYPICAL_ERROR_POINTS = 1.5
"""Percentage points by which a forecast of all modules may be off: docs/results.md, "How good it is"."""
LEVEL_PERCENT, SAMPLE_LEVEL_PERCENT = 90, 80
"""Levels of the intervals of all modules and of a sample, by the programs that were forecast and then built."""
_BASELINE = "against stock clang's -Oz"
_SMALLEST_PERCENT = 1.0
_LARGE_PERCENT = 3.0
_FEW_DISCARDABLE_PERCENT = 15.0
_BUILD = "build it with the release clang: mlgo shrink, or mlgo corpus compilers --release"
_WHOLE_PROGRAM = (
    "mlgo shrink also compiles each program as one module, and files by the smaller of heuristic and policy"
)
_OWN_BUILD = "mlgo shrink measures against your own build; its row stock, by stock clang, often has most of the gain"


def advise(forecast: Forecast) -> list[str]:
    lines = [*_conclude(forecast), _OWN_BUILD]
    if forecast.failed:
        failed, tried = len(forecast.failed), len(forecast.failed) + forecast.objects.modules
        share = f"{failed} of the {tried} modules that were tried ({100 * failed / tried:.0f}%)"
        lines.append(f"{share} do not compile and do not count")
    return lines


def _conclude(forecast: Forecast) -> list[str]:
    linked = forecast.linked
    change = linked.bytes if linked is not None else forecast.objects.text
    percent = change.percent
    compiled, failed = forecast.objects.modules, len(forecast.failed)
    if (compiled < SMALLEST_SAMPLE and compiled < forecast.modules) or failed > compiled:
        found = f"{percent_text(percent)} {_BASELINE}, of {compiled} of {forecast.modules} modules"
        remedy = "build the project first, so that its generated headers exist" if failed else "give it more --seconds"
        return [f"forecast: nothing certain: {found}; {remedy}"]
    margin = max((linked.margin if linked is not None else None) or 0.0, TYPICAL_ERROR_POINTS)
    level = LEVEL_PERCENT if compiled >= forecast.modules else SAMPLE_LEVEL_PERCENT
    interval = f"{level}% interval {percent - margin:+.1f} to {percent + margin:+.1f}%"
    if margin > max(TYPICAL_ERROR_POINTS, abs(percent)):
        sample = f"a sample of {forecast.objects.modules} modules"
        found = f"{percent_text(percent)} {_BASELINE} ({interval}), of {sample}"
        return [f"forecast: nothing certain: {found}; give it more --seconds"]
    if abs(percent) < _SMALLEST_PERCENT:
        why = _why_nothing(forecast)
        found = f"no gain expected from the release clang {_BASELINE} ({percent_text(percent)})"
        return [f"forecast: {found}{why}; {_WHOLE_PROGRAM}"]
    what = "this program" if linked is not None else "the text of its objects"
    amount = f"about {abs(percent):.0f}% {'smaller' if percent < 0 else 'larger'} than stock clang's -Oz does"
    alone = f"its policy alone {percent_text(change.policy_percent)}"
    shown = f" ({interval})" if linked is not None else ""
    lines = [f"forecast: the release clang makes {what} {amount}{shown}, {alone}"]
    if percent > 0:
        lines.append(f"do not use it as it is: train on this code (mlgo run); {_WHOLE_PROGRAM}")
    elif change.policy_percent > -_LARGE_PERCENT:
        lines.append(f"{_BUILD}; {_WHOLE_PROGRAM}")
    else:
        lines.append(f"{_BUILD}; a training on this code (mlgo run) or a plan for it (mlgo tune) may save more")
    return lines


def _why_nothing(forecast: Forecast) -> str:
    """Return why nothing is gained, as the continuation of a sentence; "" if the text does not say."""
    if forecast.discardable_percent < _FEW_DISCARDABLE_PERCENT:
        only_c = set(forecast.languages) == {"c"}
        return (
            f": only {forecast.discardable_percent:.0f}% of the text is in functions that inlining can make disappear"
            + (", and trainings on C found nothing either" if only_c else "")
        )
    return ""
