"""Judge a policy against the deployed one, at first LLVM's heuristic, on the same held-out modules, and promote it only
if it is clearly better."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import PurePosixPath

import numpy as np

from components.core.formats.policy import load_policy_info
from components.core.objectives.estimate import CODE, Estimate
from components.evaluation.claim import claimed_interval
from components.evaluation.measurements import POLICY, Comparison, Measurements, read_measurements
from components.evaluation.metrics_types import FULL_LTO, Metrics, SizeMetrics
from components.evaluation.report.terminal_report import read_metrics, verdict
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage import digest
from components.platform.storage.shared_state.versioned_json import Conflict
from pipelines.local.locations import artifact_digest
from pipelines.retrain.artifacts import local, module_checksums
from pipelines.retrain.sequential import ALPHA, rotated, spent_alpha, week_of
from pipelines.retrain.state import Decision, Deployed, State, load_state, save_state

GROWN_PERCENT = 1.0
"""A module has regressed if it is larger than under -Oz, or has higher scores, by more than this percentage."""

_ATTEMPTS = 5


@dataclass(frozen=True)
class PolicyComparison:
    """Comparison of a new policy with the deployed one, or with LLVM's heuristic, on the same modules.

    Attributes:
        gain: reduction of text size or score; positive is better.
        modules: number of modules compared.
        alpha: probability with which this comparison may err (pipelines.retrain.sequential).
        accepted_percent: gain that must be exceeded; negative where a verdict accepts a loss against LLVM's heuristic.
    """

    gain: Estimate
    modules: int
    alpha: float = ALPHA
    accepted_percent: float = 0.0

    @property
    def clearly_better(self) -> bool:
        """Whether the whole interval of level 1 - `alpha` is a gain, or no larger loss than is accepted."""
        bounds = self.gain.interval(1 - self.alpha)
        return bounds is not None and bounds[0] > self.accepted_percent

    def __str__(self) -> str:
        bounds = self.gain.interval(1 - self.alpha)
        percent = f"{self.gain.reduction_percent:+.2f}%"
        if bounds is None:
            return f"{percent} ({self.gain.why_no_interval})"
        low, high = bounds
        units = f"{self.gain.units} {self.gain.unit}s"
        return f"{percent} ({level_text(self.alpha)}% interval {low:+.2f}% to {high:+.2f}%, by {units})"


def level_text(alpha: float) -> str:
    """Return the level 1 - `alpha` in percent with two digits of `alpha`, so that it is never "100"."""
    digits = 1 - math.floor(math.log10(100 * alpha))
    return f"{100 - 100 * alpha:.{max(0, digits)}f}".rstrip("0").rstrip(".")


def compare(
    new: Measurements, old: Measurements | None, number: int = 1, week: str = "", seed: int = 0
) -> PolicyComparison:
    """Compare two evaluations on the modules that judge in this week.

    Args:
        old: evaluation of the deployed policy; None compares with LLVM's heuristic.
        number: number of the comparison with what is deployed; 1 is the first.
        week: ISO week; empty for all modules.
        seed: of the rotation.

    Raises:
        UserError: the evaluations measure different things, or have no modules in common.
    """
    if old is not None and new.objective.name != old.objective.name:
        raise UserError(
            f"one evaluation measures {new.objective.name}s, the other {old.objective.name}s",
            "compare evaluations of one problem",
        )
    common = set(new.modules) & set((old or new).modules)
    judging = rotated(common, week, seed) if week else common
    difference = _compare_on(new, old, judging)
    gain = difference.gain()
    if judging != common and (gain is None or gain.target != CODE):
        # Half of the modules may be of fewer than five projects. Their interval by module would be too narrow.
        everything = _compare_on(new, old, common)
        if (estimated := everything.gain()) is not None and (gain is None or estimated.target == CODE):
            difference, gain = everything, estimated
    if gain is None and common:
        raise UserError("no module of both evaluations has a value by LLVM's heuristic", "evaluate on more code")
    if gain is None:
        raise UserError("the two evaluations have no modules in common", "evaluate both policies on one corpus")
    return PolicyComparison(gain, int(np.unique(difference.module).size), spent_alpha(number))


def _compare_on(new: Measurements, old: Measurements | None, modules: Collection[str]) -> Comparison:
    """Compare an evaluation with that of the deployed policy, or with LLVM's heuristic, on some modules."""
    if old is None:
        return new.compare(POLICY, np.array([name in modules for name in new.modules], bool))
    return new.compare_policies(old, modules)


def regressed_modules(measured: Measurements) -> tuple[str, ...]:
    """Return the modules that the policy makes clearly worse than LLVM's heuristic does, the worst first.

    The next training compiles modules of their directories more often. So only half of the sources count, chosen by a
    digest of their names: what is measured on the other half has never influenced a training.
    """
    return tuple(name for name in measured.regressed_modules(GROWN_PERCENT) if may_steer(name))


def may_steer(module: str) -> bool:
    """Return whether regressions of a held-out module may influence the next training."""
    source = PurePosixPath(module).name.partition(".")[0]
    return hashlib.sha256(source.encode()).digest()[0] % 2 == 0


def promotion(
    state: State,
    run: Mapping[str, str],
    evaluate_deployed: Callable[[str], str],
    now: float | None = None,
    by: str = "",
    seed: int = 0,
) -> tuple[State, str]:
    """Decide whether to promote the policy of a finished run.

    Args:
        run: locations of its artifacts: policy, evaluation, corpus, and release_report if a release clang was built.
            The release report decides last, because the training clang's evaluation runs no programs.
        evaluate_deployed: returns the location of an evaluation of a policy, by its location, on the run's corpus. It
            takes minutes, so it is called only for a deployed policy, and if the run's own reports allow a promotion.
        now: seconds since the epoch; None for this moment.
        seed: of the rotation of the modules that judge.

    As long as nothing is deployed, LLVM's heuristic is. Each run that is judged counts as a comparison with what is
    deployed, even if its own reports refuse it, because only lucky policies pass them.

    Returns:
        The new state and a sentence with the reason. If the new policy is not clearly better, or its own reports rule
        out its promotion, the new state differs only by a decision; if that repeats the last one about this policy, it
        is `state` itself.
    """
    now = time.time() if now is None else now
    evaluation, policy = local(run["evaluation"]), local(run["policy"])
    info, content = load_policy_info(policy), digest(policy)
    refused, judged = own_verdict(run, content)
    decision = Decision(
        "promoted",
        now,
        by,
        "",
        run["policy"],
        content,
        run.get("run", ""),
        reduction_percent=judged.reduction_percent,
        reduction_ci95=claimed_interval(judged),
        clang_version=run.get("clang_version", ""),
    )

    @cache
    def new() -> tuple[Measurements, dict[str, str]]:
        return read_measurements(evaluation), module_checksums(run["corpus"])

    def read() -> tuple[Measurements, Measurements | None]:
        measured, modules = new()
        if missing := sorted(set(measured.modules) - set(modules)):
            raise UserError(
                f"the evaluation at {run['evaluation']} is of another corpus than {run['corpus']}, which has no module "
                f"{missing[0]}",
                "name the artifacts of one run",
            )
        if state.deployed is None:
            return measured, None
        return measured, read_measurements(local(evaluate_deployed(state.deployed.policy)))

    decision = decide(state, decision, refused, judged, read, seed)
    if decision.kind == "not promoted":
        after = state if decision.week == "" and state.repeats(decision) else state.decided(decision)
        return after, f"not promoted: {decision.reason}"
    metrics, (measured, modules) = read_metrics(evaluation), new()
    deployed = Deployed(
        policy=run["policy"],
        policy_digest=content,
        problem=info.problem,
        llvm_version=info.llvm_version,
        features=tuple(sorted(feature.name for feature in info.features)),
        modules=modules,
        reduction_percent=metrics.reduction_percent or 0.0,
        ci95=claimed_interval(metrics),
        promoted_at=now,
        run=run.get("run", ""),
        better_percent=decision.percent if state.deployed else None,
        better_ci95=decision.ci95 if state.deployed else None,
        regressed=regressed_modules(measured),
        promoted_by=by,
        reason=decision.reason,
        corpus_digest=info.corpus_digest or "",
        toolchain_digest=info.toolchain_digest or "",
        evaluation=run.get("release_report", run["evaluation"]),
        clang_version=decision.clang_version,
    )
    return state.promoted(deployed, decision), f"promoted: {decision.reason}"


def decide(
    state: State,
    decision: Decision,
    refused: str,
    judged: Metrics,
    read: Callable[[], tuple[Measurements, Measurements | None]],
    seed: int = 0,
) -> Decision:
    """Return the decision about a new policy, by its own reports and by its comparison with what is deployed.

    Args:
        decision: time, policy and reported reduction.
        refused: why its own reports rule out a promotion; "" if they do not.
        judged: metrics of the last of its own reports.
        read: returns its measurements, and those of the deployed policy on the same corpus; None if none is deployed.
            Called only if the reports allow a promotion, or if nothing is deployed.
        seed: of the rotation of the modules that judge.
    """
    decision = replace(decision, kind="not promoted", against=state.deployed_digest)
    if refused and state.deployed is not None:
        return replace(decision, reason=refused)
    measured, old = read()
    week = week_of(decision.at)
    against = compare(measured, old, state.comparisons.get(state.deployed_digest, 0) + 1, week, seed)
    if old is None:
        against = replace(against, accepted_percent=min(0.0, judged.min_reduction_percent))
    opponent = "LLVM's heuristic, as nothing is deployed," if old is None else "the deployed policy"
    decision = replace(
        decision,
        reason=f"against {opponent} {against} on {against.modules} modules",
        percent=against.gain.reduction_percent,
        ci95=against.gain.interval95,
        alpha=against.alpha,
        modules=against.modules,
        week=week,
        target=against.gain.target,
        units=against.gain.units,
    )
    if refused or not against.clearly_better:
        return replace(decision, reason=refused or decision.reason)
    if state.deployed is not None and (worse := linked_worse(judged, state.deployed)):
        return replace(decision, reason=f"{decision.reason}, but {worse}")
    return replace(decision, kind="promoted")


def linked_worse(new: Metrics, deployed: Deployed) -> str:
    """Return why the linked files rule out a promotion: their reduction is smaller than the deployed policy's.

    The reductions are compared for each link variant that has the same files in both reports, with equal sizes under
    stock clang: on changed code the two reductions would not be comparable. Full LTO, where no policy decides, is left
    out. "" if none is worse, if a report has no linked files, or if the deployed policy's report is gone or of another
    policy.
    """
    if not isinstance(new, SizeMetrics) or not new.linked or not deployed.evaluation:
        return ""
    try:
        old = read_metrics(local(deployed.evaluation))
    except UserError as error:
        say(f"linked files are not compared with those of the deployed policy: {error.problem}")
        return ""
    if not isinstance(old, SizeMetrics) or old.inputs.policy_digest not in (None, deployed.policy_digest):
        return ""
    for variant in sorted((new.linked.keys() & old.linked.keys()) - {FULL_LTO}):
        if _linked_files(new, variant) != _linked_files(old, variant):
            continue
        ours, theirs = (metrics.linked[variant]["all"].reduction_percent for metrics in (new, old))
        if ours is not None and theirs is not None and ours < theirs:
            return (
                f"text of linked programs and libraries ({variant}) is {_percent(ours)}, with the deployed policy "
                f"{_percent(theirs)}"
            )
    return ""


def _percent(reduction: float) -> str:
    return f"{abs(reduction):.2f}% {'smaller' if reduction >= 0 else 'larger'}"


def _linked_files(metrics: SizeMetrics, variant: str) -> set[tuple[str, str, int | None]]:
    """Return project, name and size under stock clang of each linked file."""
    return {
        (entry.project, entry.name, entry.stock.llvm_size_text)
        for entry in metrics.binaries
        if entry.link_variant == variant
    }


def own_verdict(run: Mapping[str, str], policy_digest: str) -> tuple[str, Metrics]:
    """Return why a run's own reports rule out its promotion, "" if they do not, and the metrics of the last one read.

    Args:
        run: as for `promotion`; "evaluation" is required.

    Raises:
        UserError: a report is of another policy.
    """
    subjects = {"evaluation": "the new policy", "release_report": "the release clang of the new policy"}
    metrics: Metrics | None = None
    for name in ("evaluation", *(("release_report",) if "release_report" in run else ())):
        metrics = read_metrics(local(run[name]))
        if metrics.inputs.policy_digest not in (None, policy_digest):  # None: of an earlier version
            raise UserError(f"the evaluation at {run[name]} is of another policy", "name the artifacts of one run")
        if metrics.inputs.policy_role == "start":
            return "it is the policy that training started from, not a new one", metrics
        if metrics.verdict != "better":
            return f"the verdict on {subjects[name]} is {verdict(metrics)}", metrics
    assert metrics is not None
    return "", metrics


def promote(
    location: str,
    run: Mapping[str, str],
    evaluate_deployed: Callable[[str], str],
    by: str,
    seed: int = 0,
    again: bool = False,
) -> str:
    """Judge the policy of a finished run against the deployed one, and write the state.

    If another process writes the state meanwhile, the run is judged again, against the policy that is deployed then. A
    policy that was already compared with the deployed one in this week is not compared again: the same modules would
    judge, and each comparison makes the following ones harder. A policy that this run's promotion deployed stays
    promoted. So a step that is repeated has the same result.

    Args:
        run: as for `promotion`.
        evaluate_deployed, by, seed: as for `promotion`.
        again: judge a policy even if it was rolled back.

    Returns:
        A sentence that says what was decided, and why.

    Raises:
        UserError: the run is not finished, or for another problem; the deployed policy is gone; the policy was rolled
            back; or the state kept changing.
    """
    policy = local(run["policy"])
    problem, content = load_policy_info(policy).problem, digest(policy)
    for _attempt in range(_ATTEMPTS):
        state = load_state(location)
        if state.deployed is not None and state.deployed.policy_digest == content:
            day = describe_day(state.deployed.promoted_at)
            if state.deployed.policy == run["policy"] and state.deployed.reason:
                return f"promoted: {state.deployed.reason} (on {day})"
            return f"not promoted: it is deployed already, since {day}"
        if state.deployed is not None and state.deployed.problem != problem:
            raise other_problem(state.deployed.problem, problem)
        if (rollback := state.rollback_of(content)) and not again:
            raise UserError(
                f"the policy at {run['policy']} was rolled back on {describe_day(rollback.at)} by "
                f"{rollback.by or 'someone'}" + (f": {rollback.reason}" if rollback.reason else ""),
                "mlgo retrain promote --again judges it nevertheless",
            )
        if earlier := state.comparison_of(content, week_of(time.time())):
            return f"not promoted: {earlier.reason} (compared on {describe_day(earlier.at)})"
        after, why = promotion(state, run, partial(_evaluate_unchanged, state, evaluate_deployed), by=by, seed=seed)
        if after is state:
            return why
        try:
            save_state(location, after)
        except Conflict:
            say(f"{location} was modified concurrently; judging again")
            continue
        return why
    raise UserError(
        f"{location} was modified concurrently {_ATTEMPTS} times", "find out what writes there, and try again"
    )


def require_deployed(state: State, remedy: str = "run mlgo retrain rollback, or restore it") -> None:
    """Raise UserError if the deployed policy's artifact is missing, or is not the one that was promoted."""
    if state.deployed is not None and artifact_digest(state.deployed.policy) != state.deployed.policy_digest:
        raise UserError(
            f"the deployed policy at {state.deployed.policy} is missing or has changed",
            remedy,
        )


def _evaluate_unchanged(state: State, evaluate_deployed: Callable[[str], str], policy: str) -> str:
    require_deployed(state)
    return evaluate_deployed(policy)


def describe_day(seconds: float) -> str:
    """Return the day of a time in seconds since the epoch."""
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def run_artifacts(root: str, released: bool) -> dict[str, str]:
    """Return the locations of the artifacts of a run at `root` that `promotion` reads.

    Args:
        released: whether the run built a release clang and reported on it.
    """
    names = ("policy", "evaluation", "corpus", *(("release_report",) if released else ()))
    return {name: f"{root}/{name}" for name in names} | {"run": root}


def other_problem(deployed: str, problem: str) -> UserError:
    """Return the error for a run of another problem than the deployed policy's."""
    return UserError(
        f"the deployed policy is for {deployed}, but this training is for {problem}",
        "use another --state for each problem",
    )
