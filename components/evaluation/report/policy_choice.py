"""Says which policy to take: the trained one, the one that training started from, a pretrained one, or none.

All reports print these notes. Imports nothing heavy, as terminal_report.py.
"""

from __future__ import annotations

from components.core import problems
from components.core.objectives import OBJECTIVES
from components.evaluation.benchmarks import program_rows
from components.evaluation.metrics_types import Interval, Metrics, ScoreComparison, SizeComparison
from components.evaluation.report.formatting import change, interval_in_words

Compared = SizeComparison | ScoreComparison | None


def reference_title(metrics: Metrics) -> str:
    """Return the title of the reference: the policy of --compare-with, or the trained policy that is not embedded."""
    if metrics.inputs.policy_role != "trained":
        return "trained policy, not embedded"
    name = _pretrained_name(metrics)
    return f"{name} policy" if name else "policy of --compare-with"


def _pretrained_name(metrics: Metrics) -> str:
    """Return the name of the pretrained policy that is the reference, "" if that is the artifact at a path, or none."""
    reference = metrics.inputs.reference or ""
    return "" if "/" in reference else reference


def start_title(metrics: Metrics) -> str:
    """Return the title of the policy that training started from."""
    name = metrics.inputs.warmstart_pretrained
    return f"{name} policy, from which training started" if name else "policy that training started from"


def verdict_subject(metrics: Metrics) -> str:
    """Return what the verdict is on, " on the NAME policy", unless it is on the trained policy."""
    titles = {
        "trained": "",
        "start": " on the policy that training started from",
        "pretrained": " on the pretrained policy",
    }
    return titles[metrics.inputs.policy_role]


def release_notes(metrics: Metrics) -> list[str]:
    """Return what the release clang embeds, unless that is a trained policy with the verdict "better"."""
    chosen, inputs = metrics.release_policy, metrics.inputs
    embeds = _embeds(metrics)
    labels = OBJECTIVES[metrics.measure].labels
    if chosen == "none":
        # Metrics of earlier versions do not say what is embedded.
        unknown = metrics.verdict == "better" or inputs.release_clang
        return [] if unknown else _notes_without_release(metrics)
    if chosen == "trained":
        if metrics.verdict == "better" or inputs.policy_role != "trained":
            return []
        if (metrics.reduction_percent or 0.0) > 0:
            return [f"the release clang {embeds} this policy although the verdict is not better"]
        return _notes_without_gain(metrics)
    title = start_title(metrics) if chosen == "start" else "pretrained policy"
    ours, other = metrics.warmstart if chosen == "start" else metrics.reference, metrics.reduction_percent
    if inputs.policy_role != "trained":
        ours, other = metrics, metrics.reference.reduction_percent if metrics.reference else None
    reduction = ours.reduction_percent if ours else None
    note = (
        f"the release clang {embeds} the {title}, not the trained policy, which is {_trained_verdict(metrics)}: "
        f"held-out {labels.cases} {change(reduction, labels.comparative)} with the embedded policy, "
        f"{change(other, labels.comparative)} with the trained one"
    )
    return [note] if (reduction or 0.0) > 0 else [note, *_notes_without_gain(metrics)]


def _embeds(metrics: Metrics) -> str:
    return "embeds" if metrics.inputs.release_clang else "is to embed"  # it is built only after the first evaluation


def _notes_without_gain(metrics: Metrics) -> list[str]:
    """Return what to use in place of a release clang whose policy is not better than LLVM's heuristic."""
    labels = OBJECTIVES[metrics.measure].labels
    flags = " ".join(f"-mllvm {option}" for option in problems.get(metrics.problem).llvm.release_options)
    notes = [
        f"the release clang {_embeds(metrics)} a policy that is not better than LLVM's heuristic on held-out "
        f"{labels.cases}: use stock clang, or the release clang without {flags}, which compiles as stock clang"
    ]
    pretrained = metrics.reference if _pretrained_name(metrics) else None
    if pretrained is not None and (pretrained.reduction_percent or 0.0) > 0:
        bounds = interval_in_words(pretrained.reduction_percent_ci95, labels.comparative)
        figures = f"{change(pretrained.reduction_percent, labels.comparative)}{bounds}"
        notes.append(f"the {reference_title(metrics)}: held-out {labels.cases} {figures}")
    return notes


def _notes_without_release(metrics: Metrics) -> list[str]:
    """Return why no policy is embedded: the evaluated one is not better, nor is the one that could take its place."""
    inputs, labels = metrics.inputs, OBJECTIVES[metrics.measure].labels
    pretrained = metrics.reference if _pretrained_name(metrics) else None
    other = start_title(metrics) if inputs.starts_from_trained else reference_title(metrics) if pretrained else ""
    others = f"the {other} is not clearly better than stock clang, either" if other else "no other one was measured"
    notes = [
        f"no release clang is built: this policy is {_trained_verdict(metrics)}, and {others}; use stock clang "
        "(release_if=always builds one nevertheless)"
    ]
    if inputs.starts_from_trained and pretrained is not None and _gains(pretrained, metrics.min_reduction_percent):
        notes.append(
            f"the {reference_title(metrics)}, which takes the place only of a training from the heuristic: held-out "
            f"{labels.cases} {change(pretrained.reduction_percent, labels.comparative)} "
            f"(mlgo toolchain --mode release --policy {inputs.reference} --output DIR)"
        )
    return notes


def _gains(compared: SizeComparison | ScoreComparison, required_percent: float) -> bool:
    """Return whether a policy has the required reduction, beyond noise where there is an interval."""
    bounds = compared.reduction_percent_ci95
    return (compared.reduction_percent or 0.0) >= required_percent and (bounds is None or bounds[0] > 0)


def _trained_verdict(metrics: Metrics) -> str:
    return metrics.inputs.trained_verdict or program_rows.verdict(metrics, metrics.programs)


def comparison_notes(metrics: Metrics) -> list[str]:
    """Return how the trained policy compares with its start and with a pretrained policy, and which one to take."""
    inputs = metrics.inputs
    if inputs.policy_role != "trained":
        return []
    notes, unseen = [], metrics.groups.unseen_projects
    if inputs.starts_from_trained:
        notes += _against(metrics, start_title(metrics), metrics.against_warmstart, unseen.against_warmstart)
        if name := inputs.warmstart_pretrained:
            notes += _choice(metrics, name, metrics.warmstart, metrics.against_warmstart, unseen.against_warmstart)
    if metrics.reference is not None:
        title = reference_title(metrics)
        notes += _against(metrics, title, metrics.against_reference, unseen.against_reference)
        knows = "trained on this corpus" if inputs.reference_knows_corpus else "trained on another corpus"
        notes.append(f"{title}: {knows}, run by the training clang")
        if trained_on := ", ".join(inputs.reference_trained_on):
            notes.append(f"the {title} was trained on modules of {trained_on}, perhaps on some of these")
        if name := _pretrained_name(metrics):
            notes += _choice(metrics, name, metrics.reference, metrics.against_reference, unseen.against_reference)
    return notes


def _against(metrics: Metrics, title: str, everything: Compared, unseen: Compared) -> list[str]:
    labels = OBJECTIVES[metrics.measure].labels
    if everything is None or everything.reduction_percent is None:
        return []

    def describe(compared: SizeComparison | ScoreComparison) -> str:
        interval = interval_in_words(compared.reduction_percent_ci95, labels.comparative)
        return change(compared.reduction_percent, labels.comparative) + (f" ({interval[2:]})" if interval else "")

    text = f"this policy against the {title}: held-out {labels.cases} {describe(everything)}"
    if unseen is not None and unseen.reduction_percent is not None:
        text += f", those of unseen projects {describe(unseen)}"
    return [text]


def _choice(metrics: Metrics, name: str, pretrained: Compared, everything: Compared, unseen: Compared) -> list[str]:
    """Return which of the trained and a pretrained policy to take.

    A difference counts if its 95% interval excludes 0. [] if `release_notes` says what to take: the policy that the
    release clang embeds in place of the trained one, or stock clang; or if stock clang is as good as either.
    """
    if metrics.release_policy != "trained" or everything is None or pretrained is None:
        return []
    gains = [(reduction or 0.0) > 0 for reduction in (metrics.reduction_percent, pretrained.reduction_percent)]
    if not any(gains):
        return []
    here, elsewhere = _direction(everything), _direction(unseen)
    embed = f"mlgo toolchain --mode release --policy {name} --output DIR"
    if metrics.inputs.warmstart_pretrained != name:
        embed += f"; to train on from it: --start-from {name}"
    if here == elsewhere == 0 and everything.reduction_percent_ci95 is None:
        return [
            f"one held-out module is too few to tell whether this policy or the {name} one is better: build your "
            f"project with each and run mlgo evaluation compare-builds ({embed})"
        ]
    if here == elsewhere == 0 and not all(gains):
        return []
    if here == elsewhere == 0:
        return [f"take either this policy or the {name} one: the difference is within noise"]
    if min(here, elsewhere) >= 0:
        return [f"take this policy, not the {name} one"]
    if max(here, elsewhere) <= 0:
        return [f"take the {name} policy, not this one ({embed})"]
    if here > 0:
        return [f"take this policy for these projects, the {name} one for other code ({embed})"]
    return [f"take the {name} policy for these projects, this one for other code ({embed})"]


def _direction(compared: Compared) -> int:
    """Return 1 if the trained policy is better by more than noise, -1 if it is worse, else 0."""
    bounds: Interval | None = compared.reduction_percent_ci95 if compared is not None else None
    if bounds is None:
        return 0
    return 1 if bounds[0] > 0 else -1 if bounds[1] < 0 else 0
