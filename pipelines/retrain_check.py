"""Whether to train again, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.console import UserError
from components.storage.uri import GsUri, parse_place
from pipelines.retrain_state import State


@dataclass(frozen=True)
class Facts:
    """What is known of the present; None for what was not looked at.

    llvm_version: of the clang to be released. features: that the training clang logs, sorted. modules: name -> crc32c
    of the corpus of today. metrics: of an evaluation of the deployed policy on fresh code. now: seconds since epoch.
    """

    now: float
    llvm_version: str | None = None
    features: tuple[str, ...] | None = None
    modules: Mapping[str, str] | None = None
    metrics: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Limits:
    """drift: share of today's modules that the deployed policy's corpus did not have. age_days: of the policy."""

    drift: float = 0.25
    age_days: float = 90.0


def reasons(state: State, facts: Facts, limits: Limits) -> list[str]:
    """Why to train again, in words; empty if nothing speaks for it."""
    deployed = state.deployed
    if deployed is None:
        return ["nothing is deployed yet"]
    found = []
    if facts.llvm_version is not None and facts.llvm_version != deployed.llvm_version:
        found.append(f"LLVM is {facts.llvm_version}, the policy was trained for {deployed.llvm_version}")
    if facts.features is not None and facts.features != deployed.features:
        gone = sorted(set(deployed.features) - set(facts.features))
        if gone:
            found.append(f"the compiler does not log features of the policy any more: {', '.join(gone)}")
    if facts.modules is not None:
        share = drift(deployed.modules, facts.modules)
        if share > limits.drift:
            percent = f"{100 * share:.0f}% of the modules are new or have changed"
            found.append(f"{percent}, more than {100 * limits.drift:g}%")
    if facts.metrics is not None:
        found += _regression(deployed.reduction_percent, deployed.ci95, facts.metrics)
    age_days = (facts.now - deployed.promoted_at) / 86400
    if age_days > limits.age_days:
        found.append(f"the policy is {age_days:.0f} days old, more than {limits.age_days:g}")
    return found


def drift(known: Mapping[str, str], today: Mapping[str, str]) -> float:
    """Share of today's modules whose content was in no module of the known corpus; names do not matter."""
    if not today:
        return 0.0
    contents = set(known.values())
    return sum(checksum not in contents for checksum in today.values()) / len(today)


def module_checksums(corpus: str) -> dict[str, str]:
    """Name -> crc32c of the bitcode of each module of a corpus artifact, from its manifest alone."""
    where = parse_place(corpus)
    if isinstance(where, GsUri):
        from components.storage.remote import look

        remote = look(where)
        if not remote.generation:
            raise UserError(f"there is no corpus at {corpus}", "check --corpus")
        files = remote.files
    else:
        from components.storage import read_manifest

        files = read_manifest(where).files
    return {entry.name.removesuffix(".bc"): entry.crc32c for entry in files if entry.name.endswith(".bc")}


def _regression(promised: float, interval: tuple[float, float] | None, metrics: Mapping[str, Any]) -> list[str]:
    """Fresh code gains clearly less than what the gate promised: the intervals do not meet, or code became larger."""
    now, now_interval = metrics.get("reduction_percent"), metrics.get("reduction_percent_ci95")
    if now is None:
        return []
    below = bool(interval and now_interval and now_interval[1] < interval[0])
    if now < 0 or below:
        return [f"on fresh code the deployed policy gains {now:.2f}%, at its promotion it was {promised:.2f}%"]
    return []
