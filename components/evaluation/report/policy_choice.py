"""Says which policy to take: the trained one, the one that training started from, a pretrained one, or none.

All reports print these notes. Imports nothing heavy, as terminal_report.py.
"""

from __future__ import annotations

from components.core import problems
from components.core.objectives import OBJECTIVES, Labels
from components.core.objectives.estimate import MODULES, Estimate
from components.evaluation.benchmarks import program_rows
from components.evaluation.claim import Compared, claimed, judges_own_build, verdict_on
from components.evaluation.metrics_types import NO_GAIN_OVER_START, Metrics, OverlapFigures, SizeMetrics
from components.evaluation.report.formatting import change, interval_in_words

CHOICE_LEVEL = 0.975
"""Level of each interval of a choice between two policies: other modules and other projects are two tests, so that one
of them errs in 5% of the choices between equal policies (Bonferroni)."""


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
    name = metrics.inputs.warmstart_pretrained
    return f"{name} policy, from which training started" if name else "policy that training started from"


def reference_row(metrics: Metrics) -> str:
    unchanged = metrics.inputs.policy_role == "trained" and _pretrained_name(metrics)
    return f"unchanged {reference_title(metrics)}" if unchanged else reference_title(metrics)


def start_row(metrics: Metrics) -> str:
    if name := metrics.inputs.warmstart_pretrained:
        return f"unchanged {name} policy"
    return "policy that training started from" if metrics.inputs.starts_from_trained else "warmstart policy"


def policy_row(metrics: Metrics) -> str:
    """Return the evaluated policy's title with its clang: the training clang's figures must not be taken for the
    release's."""
    name = metrics.inputs.policy_pretrained
    if name:
        title = f"unchanged {name} policy"
    else:
        title = "policy that training started from" if metrics.inputs.policy_role == "start" else "policy"
    return f"{title}, compiled by the {metrics.policy_compiled_by} clang"


def verdict_subject(metrics: Metrics) -> str:
    """Return what the verdict is on, " on the NAME policy", unless it is on the trained policy."""
    titles = {
        "trained": "",
        "start": " on the policy that training started from",
        "pretrained": " on the pretrained policy",
    }
    return titles[metrics.inputs.policy_role]


def earlier_training(metrics: Metrics) -> str:
    """Return the title of the evaluated policy if it was trained before this run, "" if this run trained it."""
    name, role = metrics.inputs.policy_pretrained, metrics.inputs.policy_role
    if name and "/" not in name:
        return f"{name} policy"
    return {"trained": "", "start": "policy that training started from", "pretrained": "pretrained policy"}[role]


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
            verdict = (
                "a gain on other code is not shown" if metrics.verdict == "not shown" else "the verdict is not better"
            )
            return [f"the release clang {embeds} this policy although {verdict}"]
        return _notes_without_gain(metrics)
    title = start_title(metrics) if chosen == "start" else "pretrained policy"
    ours, other = metrics.warmstart if chosen == "start" else metrics.reference, metrics.reduction_percent
    if inputs.policy_role != "trained":
        ours, other = metrics, metrics.reference.reduction_percent if metrics.reference else None
    reduction = ours.reduction_percent if ours else None
    if chosen == "start" and reduction is not None and reduction == other:
        note = f"the release clang {embeds} the {title}, because training found nothing better"
        return [note] if reduction > 0 else [note, *_notes_without_gain(metrics)]
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
        figures = f"{change(pretrained.reduction_percent, labels.comparative)}{_claim_in_words(pretrained, labels)}"
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
    if (
        inputs.starts_from_trained
        and pretrained is not None
        and (verdict_on(pretrained, metrics.min_reduction_percent) == "better")
    ):
        notes.append(
            f"the {reference_title(metrics)}, which takes the place only of a training from the heuristic: held-out "
            f"{labels.cases} {change(pretrained.reduction_percent, labels.comparative)} "
            f"(mlgo toolchain --mode release --policy {inputs.reference} --output DIR)"
        )
    return notes


def _trained_verdict(metrics: Metrics) -> str:
    """Return the verdict on the trained policy, to follow "is"."""
    text = metrics.inputs.trained_verdict or program_rows.verdict(metrics, metrics.programs)
    shown, verdict, reason = text.partition("not shown")
    return text if shown else f"not shown to be better{reason}" if verdict else text


def comparison_notes(metrics: Metrics) -> list[str]:
    """Return how the trained policy compares with its start and with a pretrained policy, and which one to take."""
    inputs = metrics.inputs
    if inputs.policy_role != "trained":
        return []
    notes = []
    if inputs.starts_from_trained:
        notes += _against(metrics, start_title(metrics), metrics.against_warmstart)
        if name := inputs.warmstart_pretrained:
            notes += _choice(metrics, name, metrics.warmstart, metrics.against_warmstart)
    if metrics.reference is not None:
        title = reference_title(metrics)
        notes += _against(metrics, title, metrics.against_reference)
        knows = "trained on this corpus" if inputs.reference_knows_corpus else "trained on another corpus"
        notes.append(f"{title}: {knows}, run by the training clang")
        if name := _pretrained_name(metrics):
            notes += _choice(metrics, name, metrics.reference, metrics.against_reference)
    return notes


def caveats(metrics: Metrics) -> list[str]:
    inputs, notes = metrics.inputs, []
    known, new = metrics.groups.unseen_modules.modules, metrics.groups.unseen_projects.modules
    if inputs.policy_pretrained:
        pass  # this corpus does not tell which modules that policy was trained on
    elif known and not new:
        notes.append(
            "all held-out modules are of projects that training saw other modules of: projects that it did not see "
            "gain less"
        )
    elif new and not known:
        notes.append("all held-out modules are of projects that training did not see")
    if isinstance(metrics, SizeMetrics) and metrics.overlap is not None:
        notes += overlap_notes(metrics.overlap)
    trained_on = inputs.pretrained_trained_on
    if not trained_on and inputs.reference_trained_on:  # metrics of earlier versions
        trained_on = {inputs.reference or "": inputs.reference_trained_on}
    for name, projects in trained_on.items():
        start = ", from which training started," if name == inputs.warmstart_pretrained else ""
        notes.append(
            f"the {name} policy{start} was trained on modules of {', '.join(projects)}, perhaps on some of these: "
            "other code may gain less"
        )
    return notes


def overlap_notes(overlap: OverlapFigures) -> list[str]:
    """Return how much of the held-out functions training compiled, too, and what the policy does to the others."""
    if not overlap.function_bytes:
        return []
    known, bodies = (100 * b / overlap.function_bytes for b in (overlap.known_bytes, overlap.known_body_bytes))
    rest = overlap.new_functions.reduction_percent
    others = "" if rest is None else f"; the others are {change(rest)}"
    return [
        f"{known:.0f}% of the bytes of held-out functions are in functions that training compiled, too, by name and "
        f"instructions ({bodies:.0f}% by instructions alone){others}"
    ]


def better_still(metrics: Metrics) -> str:
    """Return that a pretrained policy is better than the trained one, beyond noise; "" if it is not known to be."""
    inputs, labels = metrics.inputs, OBJECTIVES[metrics.measure].labels
    if inputs.policy_role != "trained":
        return ""
    for name, policy, against in (
        (inputs.warmstart_pretrained, metrics.warmstart, metrics.against_warmstart),
        (_pretrained_name(metrics), metrics.reference, metrics.against_reference),
    ):
        directions = _directions(against)
        if name and policy is not None and max(directions) <= 0 > min(directions):
            here = " on these projects" if _is_of_these_projects(against) else ""
            return (
                f"the unchanged {name} policy is better still{here}: "
                f"{change(policy.reduction_percent, labels.comparative)}"
            )
    return ""


def headline(metrics: Metrics) -> str:
    """Return the verdict and the figure that decides it, in one sentence of one direction."""
    labels = OBJECTIVES[metrics.measure].labels
    sizes = isinstance(metrics, SizeMetrics)
    baseline = f"stock {problems.get(metrics.problem).optimization}" if sizes else "LLVM's heuristic"
    count = f"{metrics.cases:,} held-out {labels.case if metrics.cases == 1 else labels.cases}"
    reduction = change(metrics.reduction_percent, labels.comparative, metrics.min_reduction_percent)
    than = f"the same as {baseline}" if reduction == "same" else f"{reduction} than {baseline}"
    modules = f"{than} on {count}"
    total = program_rows.headline_total(metrics.linked) if isinstance(metrics, SizeMetrics) else None
    if metrics.verdict == "better":
        text = f"Better: {modules}{_claim_in_words(metrics, labels)}"
        if total is not None and judges_own_build(metrics):
            linked = f"text of linked programs and libraries {change(total.reduction_percent)} than {baseline}"
            text = f"Better, your program as built: {linked}"
            if metrics.reduction_percent is not None:
                text += f", held-out modules {change(metrics.reduction_percent)}"
        elif total is not None:
            text += f", text of linked programs and libraries {change(total.reduction_percent)}"
        better = better_still(metrics)
        return f"{text}; {better}" if better else text
    reason = program_rows.verdict(metrics, metrics.programs).partition(", because ")[2]
    if metrics.refused_because == NO_GAIN_OVER_START:
        start = metrics.warmstart.reduction_percent if metrics.warmstart else None
        title = start_row(metrics)
        ours, starts = (change(percent, labels.comparative) for percent in (metrics.reduction_percent, start))
        return f"Not shown to be better than its start, the {title}: {ours} than {baseline}, the start {starts}"
    if metrics.verdict == "not shown":
        return f"Not shown: {modules}, but {reason}"
    if reason:
        return f"Not better: {reason}"
    if metrics.reduction_percent is None:
        return "Not better: nothing to compare"
    if metrics.reduction_percent == 0:
        return f"Not better: the same as {baseline} on {count}"
    required = f", less than the required {metrics.min_reduction_percent:g}%" if metrics.reduction_percent > 0 else ""
    return f"Not better: {modules}{required}"


def estimate_lines(metrics: Metrics) -> list[str]:
    """Return what the held-out modules say of code that was not measured, a line for each target."""
    labels = OBJECTIVES[metrics.measure].labels
    compared: list[tuple[str, Compared]] = [("", metrics)]
    if isinstance(metrics, SizeMetrics) and metrics.functions_once is not None:
        compared.append((", each function once", metrics.functions_once))
    return [
        f"estimate for {estimate.target}{title}: {_in_words(estimate, labels)}"
        for title, figures in compared
        for estimate in (figures.other_modules, figures.other_projects)
        if estimate is not None
    ]


def _in_words(estimate: Estimate, labels: Labels) -> str:
    reduction = change(estimate.reduction_percent, labels.comparative)
    if estimate.interval95 is None:
        return f"{reduction}, without an interval: {estimate.why_no_interval}"
    units = f"{estimate.units:,} {estimate.unit}s"
    return f"{reduction}{interval_in_words(estimate.interval95, labels.comparative)}, from {units}"


def _claim_in_words(compared: Compared, labels: Labels) -> str:
    """Return the interval of the target that a verdict claims, ", for other projects ...: ..."; "" without one."""
    estimate = claimed(compared)
    if estimate is None or estimate.interval95 is None:
        return ""
    bounds = interval_in_words(estimate.interval95, labels.comparative).removeprefix(", ")
    return f" ({estimate.target}: {bounds})"


def _against(metrics: Metrics, title: str, against: Compared | None) -> list[str]:
    labels = OBJECTIVES[metrics.measure].labels
    if against is None or against.reduction_percent is None:
        return []
    measured = change(against.reduction_percent, labels.comparative)
    text = f"this policy against the {title}: measured on held-out {labels.cases} {measured}"
    for estimate in (against.other_modules, against.other_projects):
        if estimate is not None:
            text += f"; estimate for {estimate.target} {_in_words(estimate, labels).removeprefix(f'{measured}, ')}"
    return [text]


def _choice(metrics: Metrics, name: str, pretrained: Compared | None, against: Compared | None) -> list[str]:
    """Return which of the trained and a pretrained policy to take.

    A difference counts if its interval of CHOICE_LEVEL excludes 0. [] if `release_notes` says what to take: the policy
    that the release clang embeds in place of the trained one, or stock clang; or if stock clang is as good as either.
    """
    if metrics.release_policy != "trained" or against is None or pretrained is None:
        return []
    gains = [(reduction or 0.0) > 0 for reduction in (metrics.reduction_percent, pretrained.reduction_percent)]
    if not any(gains):
        return []
    here, elsewhere = _directions(against)
    embed = f"mlgo toolchain --mode release --policy {name} --output DIR"
    if metrics.inputs.warmstart_pretrained != name:
        embed += f"; to train on from it: --start-from {name}"
    if here == elsewhere == 0 and against.modules == 1:
        return [
            f"one held-out module is too few to tell whether this policy or the {name} one is better: build your "
            f"project with each and run mlgo evaluation compare-builds ({embed})"
        ]
    if here == elsewhere == 0 and not all(gains):
        return []
    if here == elsewhere == 0:
        return [f"take either this policy or the {name} one: the difference is within noise"]
    if _is_of_these_projects(against):
        take, leave = ("this policy", f"the {name} one") if here > 0 else (f"the {name} policy", "this one")
        command = "" if here > 0 else f" ({embed})"
        return [
            f"take {take} for these projects, not {leave}; fewer than five projects do not tell which is better for "
            f"others{command}"
        ]
    if min(here, elsewhere) >= 0:
        return [f"take this policy, not the {name} one"]
    if max(here, elsewhere) <= 0:
        return [f"take the {name} policy, not this one ({embed})"]
    if here > 0:
        return [f"take this policy for these projects, the {name} one for other code ({embed})"]
    return [f"take the {name} policy for these projects, this one for other code ({embed})"]


def _is_of_these_projects(against: Compared | None) -> bool:
    """Return whether a comparison says nothing of code of other projects, nor of what changes with the project: fewer
    than five projects do not tell how policies differ by project."""
    estimate = None if against is None else against.other_modules
    return estimate is not None and estimate.target == MODULES


def _directions(against: Compared | None) -> tuple[int, int]:
    """Return for other modules and for other projects: 1 if the trained policy is shown to be better, -1 if it is shown
    to be worse, else 0."""
    estimates = (None, None) if against is None else (against.other_modules, against.other_projects)
    here, elsewhere = (0 if estimate is None else estimate.direction(CHOICE_LEVEL) for estimate in estimates)
    return here, elsewhere
