"""Decide whether to retrain, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from components.evaluation.claim import claimed_interval
from components.evaluation.metrics_types import Metrics
from pipelines.retrain.state import Deployed, State


@dataclass(frozen=True)
class RetrainInputs:
    """Current state to compare with the deployed policy; None for what was not looked at.

    Attributes:
        now: seconds since the epoch.
        llvm_version: version of LLVM to train with.
        clang_version: as Toolchain.clang_version, of that LLVM; "" if it is unknown.
        features: features that the training clang logs, sorted.
        modules: module name -> crc32c of its bitcode, in a corpus of the current code.
        metrics: metrics of an evaluation of the deployed policy on current code.
    """

    now: float
    llvm_version: str | None = None
    clang_version: str = ""
    features: tuple[str, ...] | None = None
    modules: Mapping[str, str] | None = None
    metrics: Metrics | None = None


@dataclass(frozen=True)
class Limits:
    """Limits beyond which to retrain.

    Attributes:
        drift: maximum fraction of current modules that were not in the deployed policy's corpus.
        age_days: maximum age of the policy, in days.
    """

    drift: float = 0.25
    age_days: float = 90.0


def retrain_reasons(state: State, inputs: RetrainInputs, limits: Limits) -> list[str]:
    """Return the reasons to retrain, as sentences; empty if there are none."""
    deployed = state.deployed
    if deployed is None:
        return ["nothing is deployed yet"]
    reasons = _new_llvm(state, deployed, inputs)
    if inputs.features is not None and inputs.features != deployed.features:
        gone = sorted(set(deployed.features) - set(inputs.features))
        if gone:
            reasons.append(f"the compiler no longer logs these features of the policy: {', '.join(gone)}")
    if inputs.modules is not None:
        share = drift(deployed.modules, inputs.modules)
        if share > limits.drift:
            percent = f"{100 * share:.0f}% of the modules are new or have changed"
            reasons.append(f"{percent}, more than {100 * limits.drift:g}%")
    if inputs.metrics is not None:
        reasons += _regression(deployed.reduction_percent, deployed.ci95, inputs.metrics)
    age_days = (inputs.now - deployed.promoted_at) / 86400
    if age_days > limits.age_days:
        reasons.append(f"the policy is {age_days:.0f} days old, more than {limits.age_days:g}")
    return reasons


def _new_llvm(state: State, deployed: Deployed, inputs: RetrainInputs) -> list[str]:
    """Return a reason if the LLVM to train with is another version, or another revision of its package.

    A policy that was judged with that LLVM, whatever was decided, answers the reason: another training would begin with
    the same code.
    """
    if inputs.clang_version and any(decision.clang_version == inputs.clang_version for decision in state.decisions):
        return []
    versions = (inputs.llvm_version, deployed.llvm_version)
    vendors = [text.partition(" version ")[0] for text in (inputs.clang_version, deployed.clang_version) if text]
    if inputs.llvm_version == deployed.llvm_version and len(vendors) == 2 and len(set(vendors)) == 1:
        versions = (inputs.clang_version, deployed.clang_version)
    new, old = versions
    return [f"LLVM is {new}, but the policy was trained for {old}"] if new is not None and new != old else []


def drift(trained_on: Mapping[str, str], today: Mapping[str, str]) -> float:
    """Return the fraction of today's modules whose content is in no module of the known corpus; names do not matter."""
    if not today:
        return 0.0
    contents = set(trained_on.values())
    return sum(checksum not in contents for checksum in today.values()) / len(today)


def _regression(promised: float, interval: tuple[float, float] | None, metrics: Metrics) -> list[str]:
    """Return a reason if current code gains clearly less than at the promotion.

    That is the case if the 95% intervals do not overlap, or if the code is larger than without the policy.
    """
    now, now_interval = metrics.reduction_percent, claimed_interval(metrics)
    if now is None:
        return []
    below = bool(interval and now_interval and now_interval[1] < interval[0])
    if now < 0 or below:
        return [f"on current code the deployed policy gains {now:.2f}%, at its promotion it gained {promised:.2f}%"]
    return []
